"""One view from the events of several workers."""

import msgspec

from potluck.events.types import (
    BackendChosen,
    EpochEnded,
    Evaluated,
    GroupChanged,
    MachineUsed,
    MetricsLogged,
    Notice,
    Record,
    RunEnded,
    RunResumed,
    StepCommitted,
    TrainingBegan,
)
from potluck.report.live_view import LiveView


def lines(*events, start=0.0):
    records = [Record(sequence=n, time=start + n, event=event) for n, event in enumerate(events)]
    return "".join(msgspec.json.encode(record).decode() + "\n" for record in records)


def step(number):
    return StepCommitted(step=number, epoch=0, samples=64, loss=1.0 / number, seconds=0.1)


BEGAN = TrainingBegan(num_samples=640, global_batch=64, steps_per_epoch=3, num_epochs=1, last_step=3)
EPOCH = EpochEnded(epoch=0, step=3, samples=192, loss=0.5, seconds=0.3)
SCORES = Evaluated(step=3, name="held_out", samples=10, values={"loss": 0.5}, seconds=0.1)


def told(view, *chunks):
    return [record.event for record, _ in view.take(list(chunks))]


def test_what_all_workers_tell_is_told_once_and_in_order():
    view = LiveView()
    first = ("events/rosa-0.jsonl", lines(BEGAN, step(1), step(2), step(3), SCORES, EPOCH))
    second = ("events/lily-1.jsonl", lines(BEGAN, step(1), step(2), step(3), SCORES, EPOCH, start=0.5))
    assert told(view, first, second) == [BEGAN, step(1), step(2), step(3), SCORES, EPOCH]
    assert view.state.step == 3
    assert view.state.scores == {"held_out_loss": 0.5}


def test_a_file_that_comes_late_does_not_turn_time_back():
    view = LiveView()
    behind = ("events/lily-1.jsonl", lines(step(1), step(2)))
    ahead = ("events/rosa-0.jsonl", lines(step(3), start=10.0))
    assert told(view, ahead, behind) == [step(1), step(2), step(3)]
    assert told(view, behind) == []


def test_a_loss_is_told_once_however_long_each_worker_stood_still():
    view = LiveView()
    lost = GroupChanged(step=10, quorum_id=3, left={"lily": []}, num_machines=2, reason="lost", stall_s=1.0)
    first = ("events/rosa-0.jsonl", lines(lost))
    second = ("events/fern-2.jsonl", lines(msgspec.structs.replace(lost, stall_s=1.1)))
    assert told(view, first, second) == [lost]
    back = msgspec.structs.replace(lost, left={}, joined={"lily": []}, reason="joined")
    assert told(view, ("events/rosa-0.jsonl", lines(back))) == [back]


def test_numbers_of_the_script_are_told_once_and_use_once_a_machine():
    view = LiveView()
    used = MachineUsed(cpu=0.5, memory_bytes=1, memory_total_bytes=2, sent_bytes_per_s=0.0, received_bytes_per_s=0.0)
    mine = MetricsLogged(step=3, values={"mine": 1.0})
    later = MetricsLogged(step=4, values={"mine": 1.0})
    first = ("events/rosa-0.jsonl", lines(step(3), mine, used, later))
    others = [(f"events/{worker}.jsonl", lines(step(3), mine, used, start=0.5)) for worker in ("rosa-1", "lily-2")]
    found = [(record.event, state.machine) for record, state in view.take([first, *others])]
    assert [machine for event, machine in found if event == used] == ["rosa", "lily"]
    assert [event for event, _ in found if isinstance(event, MetricsLogged)] == [mine, later]


def test_one_workers_end_is_not_the_runs():
    view = LiveView()
    assert told(view, ("events/rosa-0.jsonl", lines(step(1), RunEnded(reason="stopped", step=1)))) == [step(1)]
    assert view.state.ended == ""
    record, state = view.end("finished")
    assert record.event == RunEnded(reason="finished", step=1)
    assert state.ended == view.state.ended == "finished"


def resumed_from(number, *events, start=0.0):
    """A worker that begins with its checkpoint of that step, and says so."""
    loaded = RunResumed(step=number, checkpoint=f"model_step_{number}.pth")
    own_words = Notice(text=f"going on after step {number} from /somewhere/model_step_{number}.pth")
    return lines(loaded, own_words, *events, start=start)


def test_a_resumed_run_says_once_where_it_goes_on_and_nothing_of_what_was_before():
    view = LiveView(since=100.0)
    before = ("events/rosa-0.jsonl", lines(BEGAN, *map(step, range(1, 64))))
    lily = ("events/lily-1.jsonl", resumed_from(10, step(63), start=203.0))
    rosa = ("events/rosa-0.jsonl", resumed_from(60, step(61), step(62), step(63), start=200.0))
    found = told(view, before, lily, rosa)
    assert found == [Notice(text="going on after step 60 from rosa's model_step_60.pth"), step(61), step(62), step(63)]
    assert view.state.step == 63


def test_where_a_run_goes_on_is_told_when_the_file_that_says_so_has_come():
    view = LiveView()
    assert told(view, ("events/lily-1.jsonl", resumed_from(10, step(63), start=3.0))) == [step(63)]
    fern = ("events/fern-2.jsonl", resumed_from(60, step(61), step(62), step(63), step(64)))
    rosa = ("events/rosa-0.jsonl", lines(step(70), start=10.0))
    notice = Notice(text="going on after step 60 from fern's model_step_60.pth")
    assert told(view, fern) == [step(64)]
    assert told(view, rosa) == [notice, step(70)]


def test_a_worker_that_crashed_in_the_first_seconds_does_not_turn_the_run_back():
    view = LiveView()
    told(view, ("events/rosa-0.jsonl", lines(*map(step, range(1, 3)))))
    lily = ("events/lily-1.jsonl", resumed_from(1, start=1.5))
    assert told(view, lily, ("events/rosa-0.jsonl", lines(step(3), step(4), start=8.0))) == [step(3), step(4)]


def test_a_worker_that_starts_again_in_the_middle_does_not_turn_the_run_back():
    view = LiveView()
    assert told(view, ("events/rosa-0.jsonl", lines(BEGAN, step(1), step(2)))) == [BEGAN, step(1), step(2)]
    assert told(view, ("events/lily-1.jsonl", resumed_from(1, step(2), start=50.0))) == []
    assert view.state.step == 2


def test_a_backend_is_told_when_it_changes_and_not_by_each_worker():
    view = LiveView()
    gloo = BackendChosen(step=1, backend="gloo", reason="fern trains on its CPU", through_host=True)
    nccl = BackendChosen(
        step=9, backend="nccl", reason="every worker has a CUDA device", variables={"NCCL_DEBUG": "INFO"}
    )
    assert told(view, ("events/rosa-0.jsonl", lines(gloo)), ("events/lily-1.jsonl", lines(gloo, start=0.5))) == [gloo]
    newcomer = msgspec.structs.replace(gloo, step=5)
    assert told(view, ("events/moss-2.jsonl", lines(newcomer))) == []
    assert told(view, ("events/rosa-0.jsonl", lines(nccl, start=9))) == [nccl]
    assert told(view, ("events/lily-1.jsonl", lines(gloo, nccl, start=20))) == []
    assert view.state.backend == nccl
    again = msgspec.structs.replace(gloo, step=20)
    assert told(view, ("events/rosa-0.jsonl", lines(again, start=30))) == [again]
