"""Who is here: a sign of life counts for a while, and a host that does not train is here while it hosts."""

import json

import pytest

from potluck.core.errors import MeetingError
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.lighthouses import Lighthouses
from potluck.meeting.host.roster import AWAY_AFTER_S, LEAVE_S, MachineRoster
from potluck.meeting.wire import Reach, Report
from tests.unit.meeting.test_doorway import certificate_of, facts


class Scene:
    """A host, a machine that has joined it, and a clock that the test moves."""

    def __init__(self, folder, *, host_trains):
        self.now = 0.0
        self.roster = MachineRoster(folder / "roster.json", clock=lambda: self.now)
        host = facts("rosa", can_train=host_trains)
        for one in (host, facts("lily")):
            self.roster.enrol(one)
            self.roster.change(one.machine, devices=["cpu"])
        self.coordinator = Coordinator(
            folder=folder,
            facts=host,
            roster=self.roster,
            runs_dir=folder / "experiments",
            lighthouses=Lighthouses("127.0.0.1", None),
            clock=lambda: self.now,
        )

    def pass_time(self, seconds):
        self.now += seconds
        self.coordinator.tick()

    def states(self):
        return {one["machine"]: one["state"] for one in self.coordinator.status()["machines"]}


@pytest.mark.parametrize(("host_trains", "host_is"), [(False, "here"), (True, "away")])
def test_who_is_not_heard_is_away_but_a_host_that_does_not_train_is_heard_by_itself(tmp_path, host_trains, host_is):
    scene = Scene(tmp_path, host_trains=host_trains)
    assert scene.states() == {"rosa": "here", "lily": "here"}
    scene.pass_time(AWAY_AFTER_S + 1)
    assert scene.states() == {"rosa": host_is, "lily": "away"}
    scene.coordinator.heard("lily")
    assert scene.states()["lily"] == "here"


def reach(machine="lily", address="10.0.0.2"):
    return Report(reach=Reach(addresses=[address], port=29500), devices=["cpu"])


def test_all_gates_hear_who_is_a_member_and_who_is_not_any_more(tmp_path):
    scene = Scene(tmp_path, host_trains=True)
    told = []
    scene.coordinator.changes.first = lambda: told.append(
        [one.machine for one in scene.coordinator.shared.gate().members]
    )
    scene.coordinator.take("lily", reach())
    assert told[-1] == ["lily"]
    scene.coordinator.take("lily", Report(is_leaving=True))
    assert told[-1] == []
    scene.coordinator.heard("lily")  # back with what it knew
    assert told[-1] == ["lily"]


def test_a_machine_keeps_its_number_and_a_new_one_gets_another(tmp_path):
    roster = Scene(tmp_path, host_trains=True).roster
    assert [machine.number for machine in roster.machines.values()] == [1, 2]
    block = roster.block
    roster.enrol(facts("lily"))
    roster.enrol(facts("fern"))
    roster.become({name: known for name, known in roster.machines.items() if name != "lily"})
    roster.enrol(facts("iris"))
    again = MachineRoster(tmp_path / "roster.json")
    assert {name: machine.number for name, machine in again.machines.items()} == {"rosa": 1, "fern": 3, "iris": 4}
    assert again.block == block
    assert again.address_of("fern").startswith("127.")


def test_where_a_machine_comes_from_is_tried_last(tmp_path):
    """Behind an address translation a forwarded port may lead back to it."""
    scene = Scene(tmp_path, host_trains=True)
    scene.coordinator.take("lily", reach(address="172.20.0.5"), "10.0.0.9")
    (member,) = scene.coordinator.shared.gate().members
    assert member.addresses == ["172.20.0.5", "10.0.0.9"]
    scene.coordinator.take("lily", reach(), "10.0.0.2")
    assert scene.coordinator.shared.gate().members[0].addresses == ["10.0.0.2"]


def test_a_machine_under_a_new_name_is_still_one_machine(tmp_path):
    roster = MachineRoster(tmp_path / "roster.json")
    roster.enrol(facts("lily"))
    roster.enrol(facts("lily-2", machine_id="lily", certificate=certificate_of("lily")))
    assert list(roster.machines) == ["lily-2"]


def test_who_was_asked_to_leave_and_stays_is_overdue(tmp_path):
    scene = Scene(tmp_path, host_trains=True)
    scene.coordinator.ask_to_leave("lily", by="lily")
    for _ in range(int(LEAVE_S / 10)):
        scene.pass_time(10)
        scene.coordinator.heard("lily")
        assert scene.states()["lily"] == "leaving"
    scene.pass_time(1)
    assert scene.states()["lily"] == "left"
    assert MachineRoster(tmp_path / "roster.json").machines["lily"].has_left


def test_a_roster_that_calls_the_firewall_command_by_its_earlier_name_is_read(tmp_path):
    path = tmp_path / "roster.json"
    MachineRoster(path).enrol(facts("lily", firewall_command="sudo ufw allow"))
    assert '"firewall_command"' in path.read_text()
    path.write_text(path.read_text().replace('"firewall_command"', '"let_in"'))
    assert MachineRoster(path).machines["lily"].facts.firewall_command == "sudo ufw allow"


def test_an_earlier_versions_roster_is_called_that_and_a_damaged_one_damaged(tmp_path):
    path = tmp_path / "roster.json"
    MachineRoster(path).enrol(facts("lily"))
    kept = json.loads(path.read_text())
    for name in ("number", "reach"):  # what there was not before machines had gates
        del kept["machines"]["lily"][name]
    del kept["machines"]["lily"]["facts"]["certificate"], kept["block"]
    path.write_text(json.dumps(kept))
    with pytest.raises(MeetingError, match="written by an earlier version of Potluck") as refused:
        MachineRoster(path)
    assert refused.value.fix == f"rm -r {path}; every machine has to join again"
    for damage in ('{"machines": {"lily": 3}}', "", path.read_text()[:-20]):
        path.write_text(damage)
        with pytest.raises(MeetingError, match="is damaged"):
            MachineRoster(path)
