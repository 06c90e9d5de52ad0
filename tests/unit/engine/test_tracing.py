"""Traces of steps by torch.profiler: what is recorded, what it costs the account, and that it changes no result."""

import gzip
import json

import pytest
import torch
from torch.profiler import profile

from potluck.core.run_folder import RunFolder
from potluck.engine.steps import tracing
from potluck.engine.steps.operator_costs import operator_costs
from potluck.events.log import read_records
from potluck.events.types import Notice, StepCommitted, StepsTraced
from potluck.report.story import tell
from potluck.report.view import read_run
from tests.training import train


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")  # the tracer sets it, if nobody has


def folder(workplace, name):
    return RunFolder(workplace / "experiments" / name)


def events(workplace, name, kind):
    (file,) = folder(workplace, name).event_files()
    return [record.event for record in read_records(file) if isinstance(record.event, kind)]


def test_steps_5_to_8_are_recorded_and_the_result_is_the_same_to_the_last_bit(workplace):
    traced, _ = train("traced", epochs=2, enable_profiling=True)
    plain, _ = train("plain", epochs=2)
    assert all(torch.equal(one, other) for one, other in zip(traced, plain, strict=True))
    (told,) = events(workplace, "traced", StepsTraced)
    assert (told.first_step, told.last_step, told.left_out) == (5, 8, "")
    packed = workplace / "experiments" / "traced" / told.file
    assert packed.stat().st_size == told.num_bytes
    trace = json.loads(gzip.decompress(packed.read_bytes()))
    names = [one.get("name") for one in trace["traceEvents"]]
    assert sum(name == "Optimizer.step#SGD.step" for name in names) == 4
    assert "aten::addmm" in {cost.name for cost in told.operators}
    assert [file.name for file in packed.parent.iterdir()] == [packed.name]  # nothing half-written is left
    assert not (workplace / "experiments" / "plain" / "traces").exists()


def test_recorded_steps_are_marked_and_no_account_uses_them(workplace):
    train("traced", epochs=2, enable_profiling=True)
    marked = [event.step for event in events(workplace, "traced", StepCommitted) if event.traced]
    assert marked[:6] == [4, 5, 6, 7, 8, 9]  # 4 warms up, 9 waits for the end of the recording
    assert marked == list(range(4, marked[-1] + 1))
    view = read_run(folder(workplace, "traced"))
    assert view.account().num_steps == view.state.step - len(marked)
    (row,) = tell(view).devices.traces
    assert row.file.startswith(str(folder(workplace, "traced").path / "traces"))
    assert row.text.endswith(f" on cpu, steps 5 to 8: {row.file}")


def test_a_short_run_has_a_short_trace_or_is_told_that_there_is_none(workplace):
    train("six", max_steps=6, enable_profiling=True)
    (told,) = events(workplace, "six", StepsTraced)
    assert (told.first_step, told.last_step) == (5, 6)
    for steps in (2, 4):
        train(f"short{steps}", max_steps=steps, enable_profiling=True)
        assert events(workplace, f"short{steps}", StepsTraced) == []
        (notice,) = events(workplace, f"short{steps}", Notice)
        assert notice.text.startswith(f"no trace of steps: the run has ended after {steps} steps")


@pytest.mark.parametrize(("limit", "most"), [("_MOST_CALLS", 10), ("MOST_TRACE_BYTES", 10)])
def test_a_trace_that_is_too_large_is_left_out_and_told(workplace, monkeypatch, limit, most):
    monkeypatch.setattr(tracing, limit, most)
    train("large", epochs=2, enable_profiling=True)
    (told,) = events(workplace, "large", StepsTraced)
    assert told.file == ""
    assert "more than" in told.left_out
    assert not list((workplace / "experiments" / "large").glob("traces/*"))
    assert "no file, since its" in tell(read_run(folder(workplace, "large"))).devices.traces[0].text


def test_a_profiler_of_the_script_itself_goes_on_and_so_does_training(workplace):
    with profile() as own:
        _, step = train("own", epochs=2, enable_profiling=True)
    assert step == 14
    assert own.events()
    (notice,) = events(workplace, "own", Notice)
    assert notice.text.startswith("no trace of steps: a profiler of the script is at work")


def test_an_operators_own_time_is_without_the_operators_inside_it():
    def one(name, ts, dur, tid=1, cat="cpu_op"):
        return {"ph": "X", "cat": cat, "name": name, "tid": tid, "ts": ts, "dur": dur}

    slices = [one("linear", 0, 100), one("t", 10, 20), one("addmm", 40, 50), one("addmm", 200, 10, tid=2)]
    slices += [one("gemm", 300, 70, tid="stream 7", cat="kernel"), {"ph": "M", "name": "process_name"}]
    costs = operator_costs(json.dumps({"traceEvents": slices}).encode(), num_steps=2)
    found = {cost.name: (cost.on_device, cost.calls, round(cost.seconds * 1e6, 3)) for cost in costs}
    assert found == {
        "gemm": (True, 0.5, 35.0),
        "addmm": (False, 1.0, 30.0),
        "linear": (False, 0.5, 15.0),
        "t": (False, 0.5, 10.0),
    }
    assert [cost.name for cost in costs][:2] == ["gemm", "addmm"]
