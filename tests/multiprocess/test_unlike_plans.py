"""Workers whose plans differ (processors round differently) take equal shares and go on; nobody waits for ever."""

import pytest

from potluck.core.run_folder import RunFolder
from potluck.events.log import read_records
from potluck.events.types import Notice, StepCommitted
from tests.multiprocess import forked
from tests.multiprocess.crew import environment, lighthouses

STEPS = 30


def work(result, moved):
    import sys

    from potluck.planning import policies
    from tests.lab.delayed_worker import BATCH, main

    if moved is not None:
        policies.POLICIES["proportional"] = lambda *_: (BATCH // 2 + moved, BATCH // 2 - moved)
    sys.argv = ["worker", "--worker", result, "--steps", str(STEPS), "--policy", "proportional"]
    main()


def train(folder, address, *moved):
    """Two workers, whose policy moves that many samples from the second to the first."""
    crew = []
    for number, by in enumerate(moved):
        variables = {
            **environment(address, number, expected=2),
            "POTLUCK_HOME": str(folder.parent / f"home{number}"),
            "POTLUCK_RUNS_DIR": str(folder),
        }
        output = folder.parent / f"{folder.name}-{number}.txt"
        work_args = [str(folder / f"done{number}"), by]
        crew.append((forked.start(work, work_args, output=output, variables=variables), output))
    for process, _ in crew:
        process.join(60)
    outputs = "\n---\n".join(output.read_text() for _, output in crew)
    assert [process.exitcode for process, _ in crew] == [0, 0], outputs
    for process, _ in crew:
        process.close()
    return [[record.event for record in read_records(file)] for file in RunFolder(folder / "run").event_files()]


@pytest.mark.timeout(180)
def test_unlike_plans_end_in_equal_shares(tmp_path):
    with lighthouses(2) as [first, second]:
        # The first run knows no costs: plans differ in a group that has committed steps with equal shares.
        runs = [train(tmp_path / "first", first, 4, 6)]
        # The second run knows them: plans differ in the first step of its group.
        runs.append(train(tmp_path / "second", second, 4, 6))
    for events in (events for run in runs for events in run):
        assert max(event.step for event in events if isinstance(event, StepCommitted)) == STEPS
        shares = [event.own_samples for event in events if isinstance(event, StepCommitted)]
        assert shares[-1] == sum(event.samples for event in events if isinstance(event, StepCommitted)) / STEPS / 2
        told = [event.text for event in events if isinstance(event, Notice) and "different plans" in event.text]
        assert len(told) == 1
