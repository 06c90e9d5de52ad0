"""A host in this process, with successors, for tests of what it answers and of how it keeps its term."""

import pytest
from starlette.testclient import TestClient

from potluck.gates.messages import Touch
from potluck.meeting.host.admission import Door
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.lighthouses import Lighthouses
from potluck.meeting.host.reign import Reign, SuccessionRule
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.service import make_service
from potluck.meeting.transfer.bundle import BundleCache
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
