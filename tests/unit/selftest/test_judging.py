"""When a row fails, and what it says."""

import json
import math
from pathlib import Path

import pytest

from potluck.machine.parity import FLOAT32_LIMIT, FLOAT64_LIMIT, largest_difference
from potluck.selftest.agreement import LIMITS, judge_parameters
from potluck.selftest.document import FILE_NAME, Document, describe_machine, write_document
from potluck.selftest.orders import Described, StepsTimed
from potluck.selftest.rows import Row, verdict
from potluck.selftest.speed import judge_ratio


def timed(ratio, stock_s=0.1):
    return StepsTimed(stock_s=(stock_s,) * 20, potluck_s=(ratio * stock_s,) * 20, batch=8)


@pytest.mark.parametrize(("ratio", "result"), [(0.9, "ok"), (1.04, "ok"), (1.2, "failed")])
def test_a_step_may_be_a_twentieth_longer(ratio, result):
    row = judge_ratio("plain-loop", "cpu", timed(ratio))
    assert row.result == result
    assert ("1.20 times as long" in row.why) == (result == "failed")


def test_short_steps_may_be_three_milliseconds_longer():
    assert judge_ratio("plain-loop", "cpu", timed(1.25, stock_s=0.01)).result == "ok"
    assert judge_ratio("plain-loop", "cpu", timed(1.35, stock_s=0.01)).result == "failed"


def test_a_noisy_computer_fails_nothing():
    slow_half = StepsTimed(stock_s=(0.1,) * 20, potluck_s=(0.1, 0.2) * 10, batch=8)
    assert judge_ratio("bare-ddp", "2 workers on cpu, gloo", slow_half).result == "ok"


def test_the_limits_are_those_at_joining():
    assert (LIMITS["fp64"], LIMITS["fp32"]) == (FLOAT64_LIMIT, FLOAT32_LIMIT)


def test_the_largest_difference_counts_in_parts_of_the_largest_number():
    assert largest_difference((4.0, -8.0), (4.0, -7.0)) == 1 / 8
    assert math.isnan(largest_difference((4.0, 8.0), (4.0, math.nan)))


@pytest.mark.parametrize("value", [1e-4, math.nan, math.inf])
def test_a_worker_with_other_parameters_is_named_with_its_distance(value):
    row = judge_parameters("parity", "2 cuda, nccl", "fp32", {"worker 0 on cuda:0": 1e-7, "worker 1 on cuda:1": value})
    assert row.result == "failed"
    assert row.why == (
        "parameters are away from those of one process on 2 cuda, nccl "
        f"by {value:.1e} (worker 1 on cuda:1); at most 1e-05 is promised"
    )


def test_the_verdict_counts_what_was_done_and_names_what_failed():
    def row(check, result):
        return Row(check=check, where="cpu", result=result)

    rows = [row("parity", "ok"), row("together", "left out")]
    assert verdict(rows, "rosa") == "the check is fine on rosa"
    assert verdict([*rows, row("uneven", "ok")], "rosa") == "all 2 checks are fine on rosa"
    assert verdict([*rows, row("uneven", "failed")], "rosa") == "1 of 2 checks failed on rosa: uneven"
    assert verdict([rows[1]], "rosa") == "nothing was checked on rosa"


def test_the_file_names_versions_and_devices_and_neither_home_nor_address(tmp_path, monkeypatch):
    monkeypatch.setenv("POTLUCK_JOIN", "potluck join secret")
    seen = Described(
        devices=("cuda:0",), backends=("gloo",), has_float64=True, versions={"torch": "2.13.0"}, num_threads=2
    )
    row = Row(check="parity", where="cpu", result="failed", why=f"File {Path.home()}/x.py")
    machine = describe_machine("rosa", seen)
    document = Document(
        verdict="1 of 1", is_well=False, is_quick=True, tested_at="", seconds=1.0, machines=(machine,), rows=(row,)
    )
    text = write_document(document, tmp_path).read_text()
    found = json.loads((tmp_path / FILE_NAME).read_text())
    assert found["machines"][0]["versions"]["torch"] == "2.13.0"
    assert found["machines"][0]["devices"] == ["cpu", "cuda:0"]
    assert {"python", "potluck", "torchft"} <= set(found["machines"][0]["versions"])
    assert str(Path.home()) + "/" not in text
    assert "secret" not in text
