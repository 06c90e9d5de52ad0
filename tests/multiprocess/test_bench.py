"""A machine that slows the others is benched, comes back when it is fast again, and both are told once."""

import pytest

from potluck.core.run_folder import RunFolder
from potluck.report.story import tell
from potluck.report.view import read_run
from tests.multiprocess import forked
from tests.multiprocess.crew import environment, lighthouses

STEPS, SLOW_UNTIL = 200, 60


def work(result):
    import sys

    from potluck.engine import bench
    from tests.lab.delayed_worker import main

    bench._PRACTISE_EVERY_S = 0.5
    sys.argv = ["worker", "--worker", result, "--steps", str(STEPS), "--policy", "dynamic"]
    main()


@pytest.mark.slow
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
    view = read_run(RunFolder(tmp_path / "experiments" / "run"))
    faults = [line for line in tell(view).faults if line.kind in ("benched", "unbenched")]
    for line in faults:
        print(line.machine, line.text)
    assert [line.kind for line in faults][:2] == ["benched", "unbenched"]
    assert {line.machine for line in faults} == {"machine1"}
    assert "takes part again from step" in faults[1].text
    assert view.account().benched == {}
