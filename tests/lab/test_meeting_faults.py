"""The host is killed, a cable is cut, a lid is closed: the run goes on and nothing that was written is lost."""

import signal
import time
from itertools import pairwise

import pytest

from benchmarks.support.gathering import SMALL, Gathering
from potluck.meeting.host.roster import AWAY_AFTER_S

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(240), pytest.mark.real_world]


def test_a_killed_host_a_cut_cable_and_a_closed_lid_lose_no_event(tmp_path):
    with Gathering(tmp_path) as gathering:
        # No successor: the host itself is to come back, and to go on alone when it loses both others at once.
        host = gathering.host("--no-successor")
        host.expect("rosa is here", 60)
        gathering.join_all("lily", "fern")
        train = gathering.start("lily", "train", *SMALL, "--epochs", "1000", "--experiment-name", "long")
        gathering.wait_for_step("long", 10)

        # The host's process alone: its agent and its worker notice by themselves.
        host.send_signal(signal.SIGKILL, whole_group=False)
        killed_at, line = time.time(), gathering.line
        gathering.host("--no-successor")
        assert gathering.line == line  # the same token and certificate
        for name in ("lily", "fern", "rosa"):
            gathering.wait_until(lambda n=name: came_back(gathering, n, killed_at + 3), f"{name} does not come back")
        assert gathering.states() == {"rosa": "here", "lily": "here", "fern": "here"}

        # A cable and a lid, at once, while rosa goes on alone.
        lily, fern = gathering.lab["lily"], gathering.lab["fern"]
        lily.cut()
        fern.freeze()
        cut_at = time.time()
        time.sleep(AWAY_AFTER_S)
        away = {"rosa": "here", "lily": "away", "fern": "away"}
        gathering.wait_until(lambda: gathering.states() == away, "they are still thought to be here", 20)
        mended_at = time.time()
        lily.mend()
        fern.thaw()
        for name in ("lily", "fern"):
            gathering.wait_until(lambda n=name: came_back(gathering, n, mended_at), f"{name} does not come back")

        assert gathering.run("rosa", "stop")[0] == 0
        assert train.wait(60) == 130, train.output
        for name in ("lily", "fern"):
            for file in gathering.local_run(name, "long").glob("events/*.jsonl"):
                home = gathering.home_run("long") / "events" / file.name
                assert file.read_bytes() == home.read_bytes(), f"{file.name} differs"
        steps = {record.event.step for record in gathering.steps("long")}
        assert steps == set(range(1, max(steps) + 1))
        records = gathering.steps("long")
        for what, since, until in (("host killed", killed_at, cut_at), ("cut and frozen", cut_at, time.time())):
            print(f"{what}: longest time without a step anywhere {longest_gap_s(records, since, until):.1f} s")


def came_back(gathering, machine, after):
    """Whether the machine has committed a step since then, and the host knows it."""
    return any(record.time > after for record in gathering.steps("long", machine))


def longest_gap_s(records, since, until):
    times = sorted(record.time for record in records)
    return max(later - earlier for earlier, later in pairwise(times) if since < later < until)
