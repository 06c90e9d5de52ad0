"""Random damage to any file that the host and the reports read is a sentence with a fix: no traceback, no hang."""

import asyncio
import shutil
import time
from contextlib import suppress
from dataclasses import asdict

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from potluck.core.errors import PotluckError
from potluck.core.run_folder import RunFolder, find_run_folder, newest_run_folder
from potluck.core.settings import read_recorded_settings
from potluck.engine.checkpoints.checkpoint_file import read_checkpoint, write_checkpoint
from potluck.engine.checkpoints.checkpoints import newest_whole
from potluck.events.log import EventLog
from potluck.events.summary import summarise
from potluck.gates.identity import load_or_make
from potluck.measuring.profile_store import StoredProfile, find_profiles, save_profile
from potluck.meeting.access.token import load_or_make_token, write_metrics_key
from potluck.meeting.agent.preparation import claim_folder
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.host.admission import Door
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.lighthouses import Lighthouses
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.service import make_service
from potluck.meeting.transfer.bundle import BundleCache, pack
from potluck.meeting.transfer.run_tail import conclude
from potluck.planning.costs import ComputeProfile
from potluck.report.compare import compare
from potluck.report.runs import list_runs
from potluck.report.story import tell
from potluck.report.view import read_run
from tests.damage import damages
from tests.unit.meeting.test_doorway import facts
from tests.unit.meeting.test_runs_on_machines import record
from tests.unit.report.runs import EVENTFUL

LONGEST_S = 10.0  # of processor time


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A host's home and its runs, as Potluck itself writes them."""
    folder = tmp_path_factory.mktemp("template")
    home = Home(folder / "home")
    load_or_make(home.identity_dir)
    home.machine_id()
    roster = MachineRoster(home.host_dir / "roster.json")
    credential = roster.enrol(facts("rosa"))
    roster.enrol(facts("lily"))
    home.remember(
        HostMembership(
            machine="rosa", host="rosa", address="10.0.0.1", port=1, fingerprint="ab" * 16, credential=credential
        )
    )
    write_metrics_key(home.host_dir, load_or_make_token(home.host_dir))
    run = RunFolder(folder / "experiments" / "one")
    shutil.copytree(EVENTFUL, run.path)
    for file in run.event_files():
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:60]))
    conclude(run)
    shutil.copytree(run.path, folder / "experiments" / "two")
    claim_folder(run.path, "1", is_resumed=True)
    write_checkpoint(run.checkpoints_dir / "model_epoch_1.pth", {"step": 1, "model": {"w": torch.zeros(3)}})
    write_checkpoint(run.checkpoints_dir / "model_epoch_2.pth", {"step": 2, "model": {"w": torch.zeros(3)}})
    (run.path / "logs" / "lily-0.start-0.out.log").write_text("hello\n")
    coordinator = make_coordinator(folder, roster)
    coordinator.put_run(record("rosa", "lily").with_(folder=run.path))
    save_profile(
        home.folder,
        StoredProfile(
            machine="rosa",
            device="cpu",
            model="tiny",
            precision="no",
            compute=ComputeProfile(fixed_s=0.1, per_sample_s=0.01, memory_cap=64),
            gradient_bytes=100,
        ),
    )
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text("pass\n")
    bundle = pack(folder / "code", folder / "code" / "train.py")
    BundleCache(home.bundles_dir).put(bundle.hash, bundle.data)
    shutil.rmtree(folder / "code")
    return folder, credential


def make_coordinator(folder, roster):
    return Coordinator(
        folder=folder / "home" / "host",
        facts=facts("rosa"),
        roster=roster,
        runs_dir=folder / "experiments",
        lighthouses=Lighthouses("127.0.0.1", None),
    )


def start_host(folder, credential):
    """All that a host reads when it starts, and some seconds of its life."""
    home = Home(folder / "home")
    home.membership()
    home.machine_id()
    load_or_make(home.identity_dir)
    token = load_or_make_token(home.host_dir)
    roster = MachineRoster(home.host_dir / "roster.json")
    roster.enrol(facts("ivy"))
    coordinator = make_coordinator(folder, roster)
    door = Door(token=token, fingerprint=b"f" * 16, facts=facts("rosa"), roster=roster)
    bundles = BundleCache(home.bundles_dir)
    told = []
    coordinator.troubles._tell = told.append

    async def tick():
        coordinator.tick()
        for machine in roster.machines:
            coordinator.orders(machine)

    try:
        asyncio.run(tick())
        ask_everything(make_service(door=door, coordinator=coordinator, bundles=bundles), credential, home)
    finally:
        coordinator.files.locks.note(RunFolder(folder / "experiments" / "one"), goes_on=False)
    assert told == []  # a trouble that is told here is an exception that nobody expected


def ask_everything(service, credential, home):
    """Every kind of question to the host gets an answer that is no trouble of the host's own."""
    with TestClient(service) as client:
        client.headers["Authorization"] = f"Bearer rosa:{credential}"
        hashes = [file.name.partition(".")[0] for file in home.bundles_dir.iterdir()]
        for path in ("/status", "/runs/one", "/runs/one/account", "/metrics", "/runs/one/checkpoint", "/version"):
            assert client.get(path).status_code < 500, path
        for one in hashes:
            assert client.get(f"/bundles/{one}").status_code < 500
        assert client.post("/runs/one/news", json={}).status_code < 500
        assert client.post("/report", json={"devices": ["cpu"]}).status_code < 500
        assert client.post("/runs/one/stop").status_code < 500


def readers_of(file, folder, credential):
    """All that read this file, by name."""
    runs = folder / "experiments"
    one = RunFolder(runs / "one")
    if "two" not in file.parts:
        yield "host", lambda: start_host(folder, credential)
    if "home" in file.parts:
        yield "profiles", lambda: find_profiles(folder / "home", "tiny", "no")
        return
    yield "list", lambda: [summarise(row.state) for row in list_runs(runs)]
    yield "newest", lambda: newest_run_folder(runs)
    yield "settings", lambda: read_recorded_settings(find_run_folder(runs, "one").settings_file)
    yield "story", lambda: asdict(tell(read_run(one)))
    yield "compare", lambda: compare([read_run(RunFolder(runs / name)) for name in ("one", "two")])
    yield "conclude", lambda: conclude(one)
    yield "whole", lambda: newest_whole(one.checkpoints_dir, lambda _: None)
    yield "checkpoint", lambda: read_checkpoint(one.checkpoints_dir / "model_epoch_2.pth")
    yield "go on", lambda: claim_folder(one.path, "1", is_resumed=True)
    yield "log", lambda: EventLog(next(one.path.glob("events/*.jsonl"))).close()


@pytest.mark.timeout(300)
# No shrinking: a case takes a tenth of a second, and says itself what was damaged and how.
@settings(
    max_examples=200,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
@pytest.mark.slow
def test_random_damage_is_a_sentence_and_never_a_traceback(template, tmp_path_factory, data):
    original, credential = template
    files = sorted(
        path.relative_to(original) for path in original.rglob("*") if path.is_file() and "lock" not in path.name
    )
    file = data.draw(st.sampled_from(files))
    damage = data.draw(damages())
    folder = tmp_path_factory.mktemp("damaged") / "all"
    shutil.copytree(original, folder)
    record_file = folder / "home" / "host" / "runs" / "one.json"
    record_file.write_text(record_file.read_text().replace(str(original), str(folder)))
    damage(folder / file)
    began = time.process_time()
    try:
        for name, read in readers_of(file, folder, credential):
            try:
                read()
            except PotluckError:
                pass
            except Exception as error:
                error.add_note(f"{name}: {file}: {damage.__name__}")
                raise
        assert time.process_time() - began < LONGEST_S, (file, damage.__name__)
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)
