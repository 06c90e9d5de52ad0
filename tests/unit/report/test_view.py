"""A view tells what happened in a real run, however it is read, and does not grow with it."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import replay_size
from potluck.core.run_folder import RunFolder
from potluck.report import ledger, rows
from potluck.report.account_file import read_account
from potluck.report.timeline import COLUMNS, MOST_BINS, Marks, Timeline
from potluck.report.view import RunView, read_run
from tests.unit.report.runs import EVENTFUL, crashed, eventful, half_written, move_clock


def test_the_killed_machine_left_and_came_back_and_the_slowed_one_got_less():
    view = read_run(RunFolder(EVENTFUL))
    told = [(line.machine, line.kind) for line in view.happenings() if line.kind in ("left", "restarted", "back")]
    assert told == [("lily", "left"), ("lily", "restarted"), ("lily", "back")]
    gap = view.attendance.absences["lily-0"][0]
    assert (gap.first_step, gap.last_step) == (161, 177)
    assert 1.0 < view.merge.regroup_s < 2.0  # the engine said 1.5 s when it left
    plans = {plan.step: plan.shares for _, plan in view.merge.plans}
    assert plans[96]["rosa-0"] < plans[91]["rosa-0"] / 1.5
    assert view.away() == []


def test_read_in_pieces_it_tells_the_same(tmp_path):
    whole = read_run(RunFolder(EVENTFUL))
    folder = eventful(tmp_path)
    contents = {file: file.read_bytes() for file in folder.event_files()}
    view = RunView(folder)
    for part in (0.1, 0.35, 0.36, 0.8, 1.0):
        for file, content in contents.items():
            file.write_bytes(content[: round(part * len(content))])
        view.refresh()
    assert view.refresh() == 0
    assert view.merge.num_events == whole.merge.num_events
    assert view.account() == whole.account()
    assert view.state == whole.state
    assert rows.share_rows(view) == rows.share_rows(whole)
    assert view.merge.regroup_s == pytest.approx(whole.merge.regroup_s, rel=0.05)


def test_in_blocks_the_account_is_that_of_all_steps_at_once(monkeypatch):
    at_once = read_account(RunFolder(EVENTFUL), first_step=81)
    monkeypatch.setattr(ledger, "BLOCK_STEPS", 16)
    in_blocks = read_run(RunFolder(EVENTFUL)).account()
    assert in_blocks.num_steps == at_once.num_steps == 130
    assert in_blocks.efficiency == pytest.approx(at_once.efficiency)
    assert in_blocks.by_cause() == pytest.approx(at_once.by_cause())


def test_parts_of_a_step_add_up_to_it():
    account = read_run(RunFolder(EVENTFUL)).account()
    longest = max(sum(parts.values()) for parts in account.step_parts_s.values())
    assert longest == pytest.approx(account.wall_s / account.num_steps, rel=0.02)


def test_another_clock_changes_nothing_that_is_shown(tmp_path):
    straight, ahead = read_run(eventful(tmp_path, "straight")), eventful(tmp_path, "ahead")
    move_clock(ahead.event_file("lily", 0), 3600.0)
    view = read_run(ahead)
    assert view.ahead_s("lily-0") == pytest.approx(3600.0, abs=0.1)
    mine, theirs = view.attendance.absences["lily-0"][0], straight.attendance.absences["lily-0"][0]
    assert mine.since == pytest.approx(theirs.since, abs=0.1)
    assert len(rows.throughput_rows(view)) == pytest.approx(len(rows.throughput_rows(straight)), abs=2)


def test_a_machine_that_is_gone_is_away(tmp_path):
    folder = eventful(tmp_path)
    for file in folder.event_files():
        lines = file.read_bytes().splitlines(keepends=True)
        last = 160 if file.stem == "lily-0" else 175
        kept = next(n for n, line in enumerate(lines) if f'"step_committed","step":{last},'.encode() in line) + 1
        file.write_bytes(b"".join(lines[:kept]))
    assert read_run(folder).away() == ["lily"]


def test_a_crashed_run_is_told_up_to_its_last_whole_step(tmp_path):
    view = read_run(crashed(tmp_path))
    assert view.status == "interrupted"
    assert view.state.step == 150
    assert view.account().num_steps == 70


def test_a_run_that_has_only_begun_has_no_rows(tmp_path):
    view = read_run(half_written(tmp_path))
    assert view.machines == ["rosa", "lily"]
    assert view.settings == {}
    assert view.account() is None
    for make in (rows.throughput_rows, rows.share_rows, rows.step_rows, rows.loss_rows, rows.score_rows):
        assert make(view) == []


def large_run(tmp_path, num_workers=60, num_steps=500):
    """Many machines of which one was away for a while."""
    folder = RunFolder(tmp_path / "large")
    replay_size.write_run(folder, num_workers, num_steps)
    file = folder.event_file("machine050", 0)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(line for line in lines if not re.search(rb'"step_committed","step":3\d\d,', line)))
    return read_run(folder)


def test_a_steady_run_has_a_steady_throughput(tmp_path):
    folder = RunFolder(tmp_path / "steady")
    replay_size.write_run(folder, 3, 1001)
    shown = [row["samples_per_s"] for row in rows.throughput_rows(read_run(folder)) if row["line"] == "achieved"]
    assert len(shown) > 50
    assert shown == pytest.approx([3 * 32 / replay_size.STEP_S] * len(shown))


def test_of_many_machines_those_that_were_not_always_here_are_shown(tmp_path):
    view = large_run(tmp_path)
    shown = rows.presence_rows(view)
    assert len({row["machine"] for row in shown}) <= 24
    assert [row["state"] for row in shown if row["machine"] == "machine050"] == ["here", "away", "here"]
    assert len(rows.machine_labels(view)) == 7


def test_use_of_many_machines_is_a_bounded_number_of_rows(tmp_path):
    view = large_run(tmp_path)
    assert sum(len(worker.used) for worker in view.merge.workers.values()) == 3000
    found = rows.usage_rows(view)
    assert 3 * 1000 < len(found) <= 3 * 2100
    assert {row["who"] for row in found} == set(view.machines)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_a_timeline_loses_no_step_and_stays_small(times):
    timeline = Timeline()
    for at in times:
        timeline.add("rosa", np.array([1.8e9 + at]), np.ones((1, len(COLUMNS))))
    starts, width_s, sums = timeline.together({})
    assert sums.sum(axis=(0, 1)) == pytest.approx(len(times))
    assert len(starts) <= MOST_BINS + 1
    assert starts[0] <= 1.8e9 + min(times)
    assert starts[-1] + width_s > 1.8e9 + max(times)


@given(st.integers(1, 5000), st.integers(1, 5000), st.floats(-1e5, 1e5))
def test_clocks_are_compared_by_steps_that_both_did(first, last, ahead_s):
    steps = np.arange(1, 6000)
    mine, theirs = Marks(), Marks()
    mine.add(steps, steps * 0.5 + ahead_s)
    low, high = min(first, last), max(first, last) + 300
    theirs.add(steps[low:high], steps[low:high] * 0.5)
    assert mine.ahead_of(theirs) == pytest.approx(ahead_s, abs=1e-6)
