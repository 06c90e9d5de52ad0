"""Delays made on purpose on three machines: the account names each by its cause and its machine."""

from itertools import pairwise

import pytest

from benchmarks.support.crew import LabCrew
from lab import Lab
from lab.cluster_file import parse_cluster
from potluck.events.log import read_records
from potluck.events.types import MachineUsed, RunStarted, StepCommitted
from potluck.report.account_file import make_account
from tests.lab.delayed_worker import DELAY_S

pytestmark = [pytest.mark.needs_lab, pytest.mark.real_world, pytest.mark.timeout(240)]
NAMES = ("rosa", "lily", "fern")
CLUSTER = "machines:\n" + "".join(f"  - {{name: {name}, cores: 0.6, memory: 2G, link: 1gbit}}\n" for name in NAMES)
SLOW_DATA, SLOW_WORK, SLOW_LINK = (30, 60), (70, 100), (110, 170)
SLOW_BITS_PER_S = 18_000_000


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """One run in which three things are slow, one after the other."""
    folder = tmp_path_factory.mktemp("delayed")
    delays = {"lily": f"data:{SLOW_DATA[0]}:{SLOW_DATA[1]}", "fern": f"compute:{SLOW_WORK[0]}:{SLOW_WORK[1]}"}
    with Lab(parse_cluster(CLUSTER, source="here", name="delays"), name="delays") as lab:
        crew = LabCrew(lab, folder, ["--steps", str(SLOW_LINK[1])], expected=3, module="tests.lab.delayed_worker")
        for name in NAMES:
            crew.start(name, DELAY=delays.get(name, ""))
        crew.workers["rosa"].expect("step 1", 60)
        crew.machines.settle()
        crew.workers["rosa"].expect(f"step {SLOW_LINK[0]}", 90)
        lab["rosa"].limit_rate(SLOW_BITS_PER_S)
        for worker in crew.workers.values():
            assert worker.wait(90) == 0, worker.output
        crew.stop_lighthouse()
        files = {f"{name}-0": crew.event_files(name)[0] for name in NAMES}
        return {name: list(read_records(file)) for name, file in files.items()}


def account_of(events, steps):
    """Of the steps after the first few of a phase, in which plans still follow it."""
    first, last = steps[0] + 8, steps[1]
    times = [record.time for records in events.values() for record in records if is_step(record, first, last)]

    def belongs(record):
        if isinstance(record.event, StepCommitted):
            return first < record.event.step <= last
        return not isinstance(record.event, MachineUsed) or min(times) + 5 < record.time <= max(times)

    return make_account({name: [record for record in records if belongs(record)] for name, records in events.items()})


def is_step(record, first, last):
    return isinstance(record.event, StepCommitted) and first < record.event.step <= last


@pytest.mark.parametrize(
    ("steps", "cause", "machine", "most_s"),
    [
        (SLOW_DATA, "data_wait", "lily", 1.35 * DELAY_S),
        (SLOW_WORK, "compute", "fern", 1.35 * DELAY_S),
        (SLOW_LINK, "exposed_exchange", "rosa", 2 * DELAY_S),  # hops also wait for machines on a busy box
    ],
)
def test_a_delay_shows_under_its_name_and_machine(events, steps, cause, machine, most_s):
    account = account_of(events, steps)
    print(f"{account.num_steps} steps, efficiency {account.efficiency:.3f}, slowest link {account.slowest_link!r}")
    for loss in account.losses:
        print(f"{loss.cause:>18} {loss.machine:>6} {loss.seconds:8.3f} {loss.waited_s:8.3f} {loss.part:8.3f}")
    largest = account.losses[0]
    assert (largest.cause, largest.machine) == (cause, machine)
    per_step_s = max(largest.seconds, largest.waited_s) / account.num_steps
    assert 0.65 * DELAY_S <= per_step_s <= most_s
    assert largest.part > 2 * account.losses[1].part


def test_the_parts_of_every_step_add_up_to_the_time_that_it_took(events):
    """Against the clock of the event file, which knows nothing of the timer."""
    for name, records in events.items():
        assert isinstance(records[0].event, RunStarted)
        steps = [record for record in records if isinstance(record.event, StepCommitted)]
        spans = [
            (later.time - earlier.time, later.event)
            for earlier, later in pairwise(steps)
            if later.event.epoch == earlier.event.epoch  # between epochs a checkpoint is made
        ]
        wall_s = sum(seconds for seconds, _ in spans)
        told_s = sum(event.timing.step_s for _, event in spans)
        off = sorted(abs(event.timing.step_s / seconds - 1) for seconds, event in spans)
        print(f"{name}: {len(spans)} steps, {wall_s:.3f} s by the clock, {told_s:.3f} s by parts; worst {off[-3:]}")
        assert told_s == pytest.approx(wall_s, rel=0.002)
        # A process that is held up between the timer and the event file's clock shows in two steps.
        assert off[len(off) * 95 // 100] < 0.02
