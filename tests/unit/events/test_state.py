from potluck.events.state import replay
from potluck.events.summary import summarise
from potluck.events.types import (
    EpochEnded,
    Evaluated,
    MachineBenched,
    MachineUnbenched,
    PlanChanged,
    Record,
    RunEnded,
    RunResumed,
    RunStarted,
    StepCommitted,
    TrainingBegan,
)

STARTED = RunStarted(run="r", machine="rosa", worker=0, process_id=1, device="cpu", mixed_precision="no", versions={})
BEGAN = TrainingBegan(num_samples=4, global_batch=2, steps_per_epoch=2, num_epochs=3, last_step=6)


def step(number, loss=1.0):
    return StepCommitted(step=number, epoch=(number - 1) // 2, samples=2, loss=loss, seconds=0.5)


def ended(epoch):
    return EpochEnded(epoch=epoch, step=2 * (epoch + 1), samples=4, loss=0.5, seconds=1.0)


def scored(at, accuracy):
    return Evaluated(step=at, name="held_out", samples=9, values={"accuracy": accuracy}, seconds=0.1)


def state_after(*events):
    return replay(Record(sequence=n, time=float(n), event=event) for n, event in enumerate(events))


def test_steps_epochs_and_scores_add_up():
    state = state_after(STARTED, BEGAN, step(1), step(2), scored(2, 0.25), ended(0), step(3, loss=0.75))
    assert (state.step, state.epoch, state.loss, state.samples_per_s) == (3, 1, 0.75, 4.0)
    assert state.epochs[0].scores == {"held_out_accuracy": 0.25}
    assert state.ended == ""


def test_what_a_resume_undid_does_not_count():
    state = state_after(
        STARTED,
        BEGAN,
        step(1),
        step(2),
        ended(0),
        step(3),
        step(4),
        ended(1),
        STARTED,
        RunResumed(step=3, checkpoint="c"),
        step(4),
    )
    assert (state.step, state.epoch, state.times_resumed) == (4, 2, 1)
    assert [row.epoch for row in state.epochs] == [0]


def test_what_a_worker_with_an_older_checkpoint_is_healed_with_lasts():
    before = (STARTED, BEGAN, step(1), step(2), ended(0), step(3), step(4), ended(1), STARTED)
    state = state_after(*before, RunResumed(step=2, checkpoint="c"), step(5))
    assert state.step == 5
    assert [row.epoch for row in state.epochs] == [0, 1]


def test_a_restarted_run_is_running_again():
    state = state_after(STARTED, RunEnded(reason="stopped", step=0), STARTED)
    assert state.ended == ""
    assert summarise(state)["state"] == "running"


def test_the_summary_counts_epochs_from_one():
    rows = summarise(state_after(STARTED, BEGAN, step(1), step(2), scored(2, 0.5), ended(0)))["epochs"]
    assert [(row["epoch"], row["held_out_accuracy"], row["samples_per_s"]) for row in rows] == [(1, 0.5, 4.0)]


def plan(step, reason="it pays", **shares):
    return PlanChanged(step=step, policy="dynamic", shares=shares, reason=reason, step_s=0.1, samples_per_s=20.0)


def test_the_plan_in_force_is_the_last_one_and_the_first_is_no_change():
    state = state_after(STARTED, plan(0, a=1, b=1), step(1), plan(1, a=2), plan(2, reason="", a=2))
    assert (state.shares, state.num_plan_changes, state.predicted_samples_per_s) == ({"a": 2}, 1, 20.0)


def test_a_benched_machine_comes_back():
    benched = MachineBenched(step=1, machine="b", reason="", samples_per_s=2.0, samples_per_s_with_it=1.0)
    assert state_after(STARTED, benched, benched).benched == ("b",)
    assert state_after(STARTED, benched, MachineUnbenched(step=2, machine="b", reason="")).benched == ()
