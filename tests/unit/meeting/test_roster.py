"""Who is here: a sign of life counts for a while, and a host that does not train is here while it hosts."""

import pytest

from potluck.meeting.lighthouses import Lighthouses
from potluck.meeting.point import MeetingPoint
from potluck.meeting.roster import AWAY_AFTER_S, Roster
from tests.unit.meeting.test_doorway import facts


class Scene:
    """A host, a machine that has joined it, and a clock that the test moves."""

    def __init__(self, folder, *, host_trains):
        self.now = 0.0
        self.roster = Roster(folder / "roster.json", clock=lambda: self.now)
        host = facts("rosa", can_train=host_trains)
        for one in (host, facts("lily")):
            self.roster.enrol(one)
            self.roster.machines[one.machine].devices = ["cpu"]
        self.point = MeetingPoint(
            folder=folder,
            facts=host,
            roster=self.roster,
            runs_dir=folder / "experiments",
            lighthouses=Lighthouses("127.0.0.1"),
            clock=lambda: self.now,
        )

    def pass_time(self, seconds):
        self.now += seconds
        self.point.tick()

    def states(self):
        return {one["machine"]: one["state"] for one in self.point.status()["machines"]}


@pytest.mark.parametrize(("host_trains", "host_is"), [(False, "here"), (True, "away")])
def test_who_is_not_heard_is_away_but_a_host_that_does_not_train_is_heard_by_itself(tmp_path, host_trains, host_is):
    scene = Scene(tmp_path, host_trains=host_trains)
    assert scene.states() == {"rosa": "here", "lily": "here"}
    scene.pass_time(AWAY_AFTER_S + 1)
    assert scene.states() == {"rosa": host_is, "lily": "away"}
    scene.point.heard("lily")
    assert scene.states()["lily"] == "here"
