"""A machine that slows the others is benched, comes back when it is fast again, and both are told once."""

import pytest

from potluck.core.run_folder import RunFolder
from potluck.events.log import read_records
from potluck.events.types import MachineBenched, MachineUnbenched, PlanChanged, StepCommitted
from potluck.report.story import tell
from potluck.report.view import read_run
from tests.multiprocess import forked
from tests.multiprocess.crew import environment, lighthouses

STEPS, SLOW_UNTIL = 200, 60


def work(result):
    import sys

    from potluck.engine.group import bench
    from tests.lab.delayed_worker import main

    bench._PROBE_EVERY_S = 0.5
    sys.argv = ["worker", "--worker", result, "--steps", str(STEPS), "--policy", "dynamic"]
    main()


def check_plans(events, worker):
    """The law: a plan holds from the step on that it names, for every step until another plan names its own.

    In the first step of a group, those who are healed take no part yet.
    """
    plans, num_changes, group = {}, 0, None
    for event in events:
        match event:
            case PlanChanged():
                plans[event.step] = event.shares
                num_changes += bool(event.reason)
            case MachineBenched() | MachineUnbenched():
                plans[event.step] = None  # the group that forms next has its own plan
            case StepCommitted(step=step, own_samples=own_samples) if own_samples:
                shares = plans.get(max((first for first in plans if first <= step), default=0))
                is_same_group, group = event.quorum_id == group, event.quorum_id
                if is_same_group and shares is not None and sum(shares.values()) == event.samples:
                    assert own_samples == shares[worker], f"step {step} of {worker}: {plans}"
    assert num_changes > 1


@pytest.mark.real_world
@pytest.mark.timeout(120)
def test_a_benched_machine_comes_back_when_it_is_fast_again(tmp_path):
    with lighthouses(1) as [address]:
        crew = []
        for number in range(2):
            variables = {
                **environment(address, number, expected=2),
                "POTLUCK_HOME": str(tmp_path / f"home{number}"),
                "POTLUCK_RUNS_DIR": str(tmp_path / "experiments"),
                "DELAY": f"data:0:{SLOW_UNTIL}:0.5" if number else "",
            }
            output = tmp_path / f"output{number}.txt"
            crew.append((forked.start(work, [str(tmp_path / "done")], output=output, variables=variables), output))
        for process, _ in crew:
            process.join(100)
        outputs = [output.read_text() for _, output in crew]
        assert [process.exitcode for process, _ in crew] == [0, 0], "\n---\n".join(outputs)
        for process, _ in crew:
            process.close()
    folder = RunFolder(tmp_path / "experiments" / "run")
    for file in folder.event_files():
        check_plans([record.event for record in read_records(file)], file.stem)
    view = read_run(folder)
    faults = [line for line in tell(view).faults if line.kind in ("benched", "unbenched")]
    for line in faults:
        print(line.machine, line.text)
    assert [line.kind for line in faults][:2] == ["benched", "unbenched"]
    assert {line.machine for line in faults} == {"machine1"}
    assert "takes part again from step" in faults[1].text
    assert view.account().benched == {}
