"""The run on joined machines: its script, and what its workers' events say."""

import ast
from importlib.util import find_spec

from potluck.core.run_folder import RunFolder
from potluck.events.log import EventLog
from potluck.events.types import MetricsLogged, RunStarted, StepCommitted
from potluck.selftest.joined_run import SCRIPT, names_of, read_results


def test_the_script_imports_what_exists():
    (imported,) = (node.module for node in ast.walk(ast.parse(SCRIPT)) if isinstance(node, ast.ImportFrom))
    assert find_spec(imported) is not None


def test_parameters_shares_and_starts_of_each_worker_are_read(tmp_path):
    folder = RunFolder(tmp_path / "selftest-1")
    for machine, number in (("rosa", 0), ("lily", 1)):
        log = EventLog(folder.event_file(machine, number))
        for _ in range(1 + number):
            log.append(
                RunStarted(
                    run="selftest-1",
                    machine=machine,
                    worker=number,
                    process_id=1,
                    device="cpu",
                    mixed_precision="no",
                    versions={},
                )
            )
        log.append(StepCommitted(step=1, epoch=0, samples=16, loss=1.0, seconds=0.1, own_samples=12 - 8 * number))
        values = dict(zip(names_of(3), (0.5, None, -2.0), strict=True)) | {"training_s": 1.0}
        log.append(MetricsLogged(step=1, values=values))
        log.close()
    found = read_results(folder)
    assert found["rosa-0"].shares == (12,)
    assert found["lily-1"].shares == (4,)
    assert (found["rosa-0"].num_starts, found["lily-1"].num_starts) == (1, 2)
    assert found["rosa-0"].parameters[0::2] == (0.5, -2.0)
    assert found["rosa-0"].parameters[1] != found["rosa-0"].parameters[1]  # not a number
