"""A successor's copy of the host's state: encrypted, given to successors only, and enough to be the host."""

import json

import pytest
from starlette.testclient import TestClient

from potluck.gates.identity import load_or_make
from potluck.gates.messages import Touch
from potluck.meeting.agent.messages import AgentPlace
from potluck.meeting.agent.succession import AgentSuccession
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.host.admission import Door
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.deputy import restore
from potluck.meeting.host.lighthouses import Lighthouses
from potluck.meeting.host.reign import Reign, SuccessionRule
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.run_files import RunFiles
from potluck.meeting.host.service import make_service
from potluck.meeting.host.troubles import Troubles
from potluck.meeting.succession.state_copy import HostStateCopy, KeptCopy
from potluck.meeting.transfer.bundle import BundleCache
from potluck.meeting.wire import Succession
from tests.unit.meeting.test_doorway import facts
from tests.unit.meeting.test_runs_on_machines import record

TOKEN = b"t" * 16


@pytest.fixture
def host(tmp_path):
    """A host with lily as its successor and fern as an ordinary machine, and clients of both."""
    own = facts("rosa", address="127.0.0.1")
    roster = MachineRoster(tmp_path / "roster.json")
    credentials = {name: roster.enrol(own if name == "rosa" else facts(name)) for name in ("rosa", "lily", "fern")}
    reign = Reign("rosa", SuccessionRule(named=("lily",)))
    touch = Touch(host_heard_s=0, has_lease=True, newest_term=1, confirmed_by=("rosa", "lily", "fern"))
    reign.settle(touch, ["rosa", "lily", "fern"])
    coordinator = Coordinator(
        folder=tmp_path / "host",
        facts=own,
        roster=roster,
        runs_dir=tmp_path / "experiments",
        lighthouses=Lighthouses("127.0.0.1", None),
        reign=reign,
        token=TOKEN,
    )
    folder = tmp_path / "experiments" / "one"
    (folder / "events").mkdir(parents=True)
    (folder / "events" / "rosa-0.jsonl").write_bytes(b'{"whole": 1}\n{"half')
    (folder / "run.yaml").write_text("model: mlp\n")
    coordinator.put_run(record("rosa", "lily", state="running").with_(folder=folder))
    door = Door(token=TOKEN, fingerprint=b"f" * 16, facts=own, roster=roster)
    app = make_service(door=door, coordinator=coordinator, bundles=BundleCache(tmp_path / "bundles"))

    def client(name):
        one = TestClient(app, raise_server_exceptions=False)
        one.headers["Authorization"] = f"Bearer {name}:{credentials[name]}"
        return one

    return coordinator, client


def test_only_successors_get_the_hosts_state_and_files(host):
    _, client = host
    for path in ("/succession/files/one?file=events/rosa-0.jsonl&offset=0",):
        assert client("lily").get(path).status_code == 200
        assert client("fern").get(path).status_code == 400
    assert client("lily").post("/succession", json={"known": 0}).status_code == 200
    refused = client("fern").post("/succession", json={"known": 0})
    assert refused.status_code == 400
    assert "no successor" in refused.json()["error"]


def test_a_state_is_sent_once_and_again_when_it_has_changed(host):
    coordinator, client = host
    first = client("lily").post("/succession", json={"known": 0}).json()
    state = HostStateCopy.model_validate(first["state"])
    assert json.loads(state.roster)["machines"].keys() == {"rosa", "lily", "fern"}
    assert client("lily").post("/succession", json={"known": state.rank}).json()["state"] is None
    coordinator.heard("fern")  # not worth a copy
    assert client("lily").post("/succession", json={"known": state.rank}).json()["state"] is None
    coordinator.put_run(coordinator.state.runs["one"].with_(expected=7))
    again = HostStateCopy.model_validate(client("lily").post("/succession", json={"known": state.rank}).json()["state"])
    assert again.rank > state.rank
    assert coordinator.succession.reign.copies["lily"] == state.rank


def test_of_event_files_only_whole_lines_are_copied_and_no_other_file(host):
    coordinator, client = host
    name = next(iter(coordinator.state.runs))
    answer = client("lily").get(f"/succession/files/{name}?file=events/rosa-0.jsonl&offset=0")
    assert answer.content == b'{"whole": 1}\n'
    for file in ("../../etc/passwd", "checkpoints/x.pth", "events/../run.yaml", "host.lock"):
        assert client("lily").get(f"/succession/files/{name}?file={file}&offset=0").status_code == 400, file


def test_the_copy_on_disk_is_encrypted_with_the_machines_own_key(host, tmp_path):
    coordinator, _ = host
    own, other = load_or_make(tmp_path / "lily"), load_or_make(tmp_path / "fern")
    kept = KeptCopy(tmp_path / "copy", own)
    assert kept.rank == 0
    state = coordinator.succession.take()
    kept.keep(state)
    content = (tmp_path / "copy" / "state.sealed").read_bytes()
    for secret in (TOKEN.hex(), "rosa", "credential_hash"):
        assert secret.encode() not in content
    assert KeptCopy(tmp_path / "copy", own).state == state
    assert KeptCopy(tmp_path / "copy", other).state is None
    (tmp_path / "copy" / "state.sealed").write_bytes(content[:-1] + b"x")
    assert KeptCopy(tmp_path / "copy", own).state is None, "damaged: it is fetched again"


def test_a_restored_host_knows_machines_runs_and_token(host, tmp_path):
    coordinator, _ = host
    home = Home(tmp_path / "home")
    restore(home, coordinator.succession.take(), {})
    roster = MachineRoster(home.host_dir / "roster.json")
    assert roster.machines.keys() == {"rosa", "lily", "fern"}
    assert roster.block == coordinator.roster.block
    runs = RunFiles(home.host_dir / "runs", Troubles(lambda _: None)).load()
    name = next(iter(coordinator.state.runs))
    assert runs[name].folder == home.runs_dir.absolute() / name
    assert runs[name].secret == coordinator.state.runs[name].secret
    assert (home.host_dir / "token").read_text() == TOKEN.hex()


def test_a_copy_says_of_which_cluster_it_is(host, tmp_path):
    coordinator, _ = host
    kept = KeptCopy(tmp_path / "copy", load_or_make(tmp_path / "lily"))
    assert kept.block is None
    kept.keep(coordinator.succession.take())
    assert kept.block == coordinator.roster.block
    kept.forget()
    assert (kept.block, kept.rank) == (None, 0)
    assert KeptCopy(tmp_path / "copy", load_or_make(tmp_path / "lily")).rank == 0


def test_a_copy_of_another_cluster_is_forgotten_at_the_first_orders(host, tmp_path):
    """Else a newer rank from there would keep this host's state away, and the other cluster's would be restored."""
    coordinator, _ = host
    home = Home(tmp_path / "home")
    kept = KeptCopy(home.succession_dir, load_or_make(home.identity_dir))
    kept.keep(coordinator.succession.take().model_copy(update={"term": 9}))
    membership = HostMembership(
        machine="lily", host="rosa", address="127.0.0.1", port=29500, fingerprint="00", credential="x"
    )
    place = AgentPlace(home=home, membership=membership, gate=str(tmp_path / "gate"), threads=None, data_dir=tmp_path)
    own = AgentSuccession(place, lambda _: None, {})
    same = coordinator.shared.fresh().model_copy(update={"succession": Succession()})
    own.follow(same)
    assert KeptCopy(home.succession_dir, load_or_make(home.identity_dir)).rank > 0
    own.follow(same.model_copy(update={"block": "127.9.0.0"}))
    assert KeptCopy(home.succession_dir, load_or_make(home.identity_dir)).rank == 0
