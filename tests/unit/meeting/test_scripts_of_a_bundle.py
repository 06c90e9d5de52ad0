"""A run brings its code in a bundle: no other file is run, and whose code it is is said on every machine."""

import pytest

from potluck.core.errors import BundleError, MeetingError
from potluck.meeting.agent.agent import Agent
from potluck.meeting.agent.preparation import fetch_script
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.transfer.bundle import BundleCache, pack
from potluck.meeting.transfer.selection import check_script
from potluck.meeting.wire import Assignment, PlainPlace, RunTask
from tests.unit.meeting.test_service import service  # noqa: F401  a fixture

OUTSIDE = ["../../../../etc/hostname", "/etc/hostname", "a/../../b.py", "..", "", ".", "x\x1b[2J.py"]
MEMBERSHIP = HostMembership(machine="lily", host="rosa", address="127.0.0.1", port=1, fingerprint="00", credential="c")


def assignment(task, plain=None):
    return Assignment(
        plain=plain,
        run="one",
        run_id="1",
        phase="go",
        task=task,
        started_by="ann@rosa",
        workers=[0],
        devices=["cpu"],
        expected=1,
        lighthouse_port=1,
        secret="s",
        runs_dir=None,
    )


def home_with_bundle(folder):
    """A machine's home whose cache holds the bundle of one script, train.py; and the bundle."""
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text("pass")
    bundle = pack(folder / "code", folder / "code" / "train.py")
    home = Home(folder / "home")
    BundleCache(home.bundles_dir).put(bundle.hash, bundle.data)
    return home, bundle


@pytest.mark.parametrize("bundle", [None, "0" * 64], ids=["without a bundle", "with a bundle"])
@pytest.mark.parametrize("entry", OUTSIDE)
def test_a_script_outside_its_bundle_is_refused_by_host_and_machine(service, tmp_path, entry, bundle):  # noqa: F811
    client, app, _ = service
    client.post("/report", json={"devices": ["cpu"]})
    answer = client.post("/runs", json={"task": {"entry": entry, "bundle": bundle}})
    assert answer.status_code == 400
    assert "potluck run script.py" in answer.json()["fix"]
    assert list(app.state.coordinator.state.runs) == ["one"]
    with pytest.raises(MeetingError):
        fetch_script(MEMBERSHIP, Home(tmp_path), assignment(RunTask(entry=entry, bundle=bundle)))


def test_a_script_that_its_bundle_does_not_hold_is_refused_by_the_machine(tmp_path):
    home, bundle = home_with_bundle(tmp_path)
    assert check_script(RunTask(entry="train.py", bundle=bundle.hash)).entry == "train.py"
    assert fetch_script(MEMBERSHIP, home, assignment(RunTask(entry="train.py", bundle=bundle.hash))).is_dir()
    with pytest.raises(BundleError, match="no script"):
        fetch_script(MEMBERSHIP, home, assignment(RunTask(entry="other.py", bundle=bundle.hash)))


def test_what_a_plain_script_saved_stays_when_another_run_has_its_name(tmp_path):
    home, bundle = home_with_bundle(tmp_path)
    task = RunTask(entry="train.py", bundle=bundle.hash, is_plain=True)
    plain = PlainPlace(master="lily", node_rank=0, num_nodes=1, world_size=1)
    folder = fetch_script(MEMBERSHIP, home, assignment(task, plain))
    (folder / "snapshot.pt").write_bytes(b"weights")
    assert fetch_script(MEMBERSHIP, home, assignment(task, plain)) == folder
    assert [file.name for file in folder.iterdir()] == ["train.py"]
    (kept,) = folder.parent.glob(".one.until-*/snapshot.pt")
    assert kept.read_bytes() == b"weights"


def test_whose_code_it_is_is_said_whenever_a_run_brings_code(tmp_path):
    said = []
    agent = Agent(Home(tmp_path), MEMBERSHIP, gate="", tell=said.append, show=said.append)
    agent._take_on(assignment(RunTask(entry="train.py")))
    agent._take_on(assignment(RunTask(entry="train.py", bundle="ab" * 32)))
    assert [line for line in said if "runs code from ann@rosa" in line] == [
        "this machine runs code from ann@rosa: bundle none",
        "this machine runs code from ann@rosa: bundle abababababab",
    ]
    said.clear()
    agent._take_on(assignment(RunTask(settings={"model": "simple_cnn"})))
    assert not [line for line in said if "code" in line]
