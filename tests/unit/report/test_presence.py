"""Who took part in which steps: what is shown is what was committed, through crashes, resumes and healing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.run_folder import RunFolder
from potluck.events.log import EventLog, read_records
from potluck.events.types import MachineBenched, MachineUnbenched, StepCommitted
from potluck.report import plots, rows
from potluck.report.presence import Stretch, cut, lasting, num_steps, pauses, steps_of, without
from potluck.report.story import tell
from potluck.report.timeline import COLUMNS
from potluck.report.view import read_run
from potluck.report.worker import WorkerEvents
from tests.unit.report.runs import EVENTFUL, RESUMED, crashed, eventful, resumed

STEP_S = 0.1


def commits(folder):
    """Every commit of every machine: step, time, machine."""
    for file in folder.event_files():
        for record in read_records(file):
            if isinstance(record.event, StepCommitted):
                yield record.event.step, record.time, file.stem.rpartition("-")[0]


def steps_without(folder, machine):
    """Counted one by one: steps whose last commit a machine has no part in."""
    last = {}
    for step, at, _ in commits(folder):
        last[step] = max(at, last.get(step, 0.0))
    own = {step for step, at, who in commits(folder) if who == machine and at > last[step] - 1.0}
    return len(last.keys() - own)


@pytest.mark.parametrize("make", [eventful, crashed, resumed])
def test_steps_away_are_the_steps_that_were_committed_without_a_machine(tmp_path, make):
    folder = make(tmp_path)
    for row in tell(read_run(folder)).machines:
        assert row.steps_away == steps_without(folder, row.machine), row.machine


def test_a_machine_that_resumed_from_an_older_checkpoint_and_was_healed_was_not_away():
    """lily had only its checkpoint of step 10; fern had that of step 60, and lily was healed at step 63."""
    view = read_run(RunFolder(RESUMED))
    assert {row.machine: row.steps_away for row in tell(view).machines} == {"lily": 2, "rosa": 60, "fern": 14}
    told = [(line.machine, line.kind) for line in view.happenings() if line.kind in ("left", "back")]
    assert told == [("rosa", "left"), ("lily", "left"), ("lily", "back"), ("rosa", "back")]
    texts = [line.text for line in view.happenings()]
    assert "back at step 63; 2 steps were done without it" in texts
    assert "back at step 93; 47 steps were done without it" in texts
    assert "no machine trained the run for 4.4 s; it went on after step 60, and 3 steps were done again" in texts
    assert view.state.step == 110


def test_a_pause_is_not_running_time_and_nothing_is_drawn_across_it():
    view = read_run(RunFolder(RESUMED))
    [pause] = view.attendance.pauses
    begin, end = pause.begin - view.began_at, pause.end - view.began_at
    assert view.attendance.paused_s == pytest.approx(4.38, abs=0.01)
    assert tell(view).result["time"] == "9.1 s, of which 5.6 s in steps; pauses of 4.4 s are not counted"
    for make in (rows.throughput_rows, rows.share_rows, rows.loss_rows):
        shown = make(view)
        assert not [row for row in shown if begin + 0.01 < row["t"] < end - 0.01]
        assert {row["t"] > (begin + end) / 2: row["session"] for row in shown} == {False: 0, True: 1}
    stretches = [row for row in rows.presence_rows(view) if row["t"] < end - 0.01 and row["until"] > begin + 0.01]
    assert {(row["machine"], row["state"]) for row in stretches} == {
        (machine, "paused") for machine in ("lily", "rosa", "fern")
    }


def test_plots_break_their_lines_at_pauses_and_count_in_units_that_can_be_read():
    short = [{"t": 10.0, "session": 0, "loss": 1.0}, {"t": 200.0, "session": 0, "loss": 0.5}]
    for scale, unit in ((1, "seconds"), (10, "minutes"), (100, "hours"), (10_000, "days")):
        spec = plots.loss([{**row, "t": scale * row["t"]} for row in short]).spec
        assert spec["encoding"]["x"]["title"] == f"{unit} since the run began"
        assert spec["encoding"]["detail"]["field"] == "session"


def test_a_run_that_never_paused_has_no_pause():
    view = read_run(RunFolder(EVENTFUL))
    assert view.attendance.pauses == []
    assert {row["session"] for row in rows.throughput_rows(view)} == {0}


def worker_of(*sessions):
    """A worker with the steps and times of each of its processes."""
    worker = WorkerEvents("rosa-0")
    for numbers, times in sessions:
        worker.note_start(times[0] - 1)
        for some in np.array_split(np.arange(len(numbers)), 3):
            if len(some):
                values = np.ones((len(some), len(COLUMNS)))
                worker.note_steps(np.array(numbers)[some], np.array(times)[some], 1, values)
    return worker


def test_a_stretch_ends_where_steps_are_missing_and_where_a_process_ends():
    worker = worker_of(([1, 2, 3, 7, 8], [1.0, 2.0, 3.0, 7.0, 8.0]), ([9, 10], [19.0, 20.0]))
    assert [(s.first_step, s.last_step) for s in worker.stretches] == [(1, 3), (7, 8), (9, 10)]
    assert worker.sessions == [(0.0, 8.0), (18.0, 20.0)]


def test_a_benched_machine_is_not_gone_and_why_it_sat_is_said_once(tmp_path):
    folder = RunFolder(tmp_path / "benched")
    reason = "fern is benched: with it a step takes 40 ms, without it 20 ms"
    sat = MachineBenched(step=5, machine="fern", reason=reason, samples_per_s=2.0, samples_per_s_with_it=1.0)
    back = MachineUnbenched(step=9, machine="fern", reason="it pays")
    logs = {name: EventLog(folder.event_file(name, 0)) for name in ("rosa", "fern")}
    for number in range(1, 13):
        for name, log in logs.items():
            if number == 5:
                log.append(sat)
            if number == 9 and name == "fern":
                log.append(back)
            if name == "rosa" or number <= 5 or number >= 11:
                log.append(StepCommitted(step=number, epoch=0, samples=2, own_samples=1, loss=1.0, seconds=0.1))
    for log in logs.values():
        log.close()
    view = read_run(folder)
    assert view.attendance.missed("fern") == (5, 5)
    assert view.attendance.missed("rosa") == (0, 0)
    states = {row["state"] for row in rows.presence_rows(view) if row["machine"] == "fern"}
    assert "away" not in states
    told = [(line.machine, line.text) for line in view.happenings()]
    assert told == [
        ("fern", "benched from step 5: with it a step takes 40 ms, without it 20 ms"),
        ("fern", "takes part again from step 9: it pays"),
    ]


@st.composite
def histories(draw):
    """A run of a few sessions: who takes part in which steps, and to which step each session goes back."""
    at, reached, done = 0.0, 0, []
    for _ in range(draw(st.integers(1, 4))):
        step = draw(st.integers(0, reached))
        for _ in range(draw(st.integers(1, 4))):  # the members change
            members = draw(st.sets(st.sampled_from("abc"), min_size=1))
            for _ in range(draw(st.integers(1, 6))):
                step, at = step + 1, at + STEP_S
                done.append((at, step, members))
        reached = step
        at += draw(st.floats(2.0, 50.0))
    return done


@given(histories())
def test_any_history_of_joins_losses_and_resumes_is_told_as_it_was(done):
    stretches = {}
    for name in "abc":
        own = [(at, step) for at, step, members in done if name in members]
        pieces, before = [], None
        for at, step in own:
            if before is None or step != before[1] + 1 or at > before[0] + 1.0:
                pieces.append([])
            pieces[-1].append((at, step))
            before = (at, step)
        stretches[name] = [
            Stretch(first_step=piece[0][1], last_step=piece[-1][1], since=piece[0][0], until=piece[-1][0])
            for piece in pieces
        ]
    truth = {}
    for _, step, members in done:  # going back undoes all that followed
        truth = {number: who for number, who in truth.items() if number < step} | {step: members}
    kept = lasting(stretches)
    everyone = steps_of(piece for own in kept.values() for piece in own)
    assert num_steps(everyone) == len(truth)
    for name, own in kept.items():
        away = without(everyone, steps_of(own))
        assert num_steps(away) == sum(name not in who for who in truth.values())


spans = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)).map(sorted).map(tuple), max_size=6)


@given(spans, spans)
def test_spans_are_sets_of_steps(first, second):
    def normal(some):
        return steps_of(Stretch(first_step=a, last_step=b, since=0.0, until=0.0) for a, b in some)

    def numbers(some):
        return {step for a, b in some for step in range(a, b + 1)}

    left = without(normal(first), normal(second))
    assert numbers(left) == numbers(first) - numbers(second)
    assert num_steps(left) == len(numbers(left))


def test_pauses_lie_between_the_lives_of_all_processes():
    assert pauses([(0.0, 10.0), (2.0, 20.0), (20.5, 30.0), (50.0, 60.0), (5.0, 6.0)]) == [(30.0, 50.0)]
    assert cut((0.0, 100.0), [(30.0, 50.0), (90.0, 120.0)]) == [(0.0, 30.0), (50.0, 90.0)]
