"""Who does what just now: shares, who is slow, benched or away; and the lines of joined machines."""

from potluck.events.types import GroupChanged, LinePrinted, Notice, Record, StepCommitted, StepTiming
from potluck.meeting.agent.state_line import files_line, over_line, run_line, silence_line, state_line
from potluck.meeting.transfer.run_tail import Pace
from potluck.report.live_view import LiveView
from potluck.report.machines_now import machines_line, speeds_line
from potluck.report.merge import Merge
from tests.unit.report.test_live_view import lines


def step(number, own, own_s=0.1, seconds=0.1, at=None):
    timing = StepTiming(compute_s=own_s)
    event = StepCommitted(step=number, epoch=0, samples=64, own_samples=own, loss=0.5, seconds=seconds, timing=timing)
    return Record(sequence=number, time=float(number) if at is None else at, event=event)


def test_shares_are_told_by_machine_and_add_up_over_its_workers():
    merge = Merge()
    assert machines_line(merge, ()) == ""
    merge.take("rosa-0", [step(1, 32)])
    assert machines_line(merge, ()) == ""  # one machine: there is nothing to share
    assert machines_line(merge, (), ["rosa", "the-attic"]) == "shares: rosa 50 %, the-attic no step yet"
    merge.take("the-attic-1", [step(1, 16)])
    merge.take("the-attic-2", [step(1, 16)])
    assert machines_line(merge, ()) == "shares: rosa 50 %, the-attic 50 %"


def test_a_machine_that_the_others_wait_for_is_called_slow():
    merge = Merge()
    merge.take("rosa-0", [step(number, 48, own_s=0.06) for number in range(1, 9)])
    merge.take("fern-1", [step(number, 16, own_s=0.1) for number in range(1, 9)])
    assert machines_line(merge, ()) == "shares: rosa 75 %, fern 25 % (slow: the others wait 40 ms a step)"


def test_a_benched_and_an_absent_machine_are_called_so():
    merge = Merge()
    for worker in ("rosa-0", "lily-1", "fern-2"):
        merge.take(worker, [step(1, 20)])
    merge.take("rosa-0", [step(2, 64, at=61.0)])
    assert machines_line(merge, ("fern",)) == "shares: rosa 66 %, lily away, fern benched"
    merge.take("lily-1", [step(3, 32, at=61.5)])
    assert "lily 41 %" in machines_line(merge, ("fern",))


def test_a_machine_that_has_left_is_away_at_once_and_back_with_its_return():
    merge = Merge()
    for worker in ("rosa-0", "lily-1"):
        merge.take(worker, [step(1, 32)])
    left = GroupChanged(step=2, num_machines=1, reason="lost", stall_s=1.0, left={"lily": []})
    merge.take("rosa-0", [Record(sequence=2, time=2.0, event=left), step(3, 64, at=2.1)])
    assert machines_line(merge, ()) == "shares: rosa 75 %, lily away"
    assert speeds_line(merge, (), 64) == ""
    back = GroupChanged(step=4, num_machines=2, reason="joined", stall_s=0.1, joined={"lily": []})
    merge.take("rosa-0", [Record(sequence=4, time=3.0, event=back)])
    merge.take("fern-2", [Record(sequence=2, time=2.0, event=left)])  # the file of another worker, read later
    merge.take("lily-1", [step(4, 32, at=3.1)])
    assert "lily away" not in machines_line(merge, ())


def test_a_long_step_of_all_is_nobodys_absence():
    merge = Merge()
    for at in (1.0, 601.0):
        merge.take("rosa-0", [step(round(at), 32, at=at)])
        merge.take("lily-1", [step(round(at), 32, at=at + 5000.5)])  # another clock
    assert machines_line(merge, ()) == "shares: rosa 50 %, lily 50 %"


def test_the_view_follows_all_workers():
    view = LiveView()
    list(
        view.take(
            [("events/rosa-0.jsonl", lines(step(1, 48).event)), ("events/lily-1.jsonl", lines(step(1, 16).event))]
        )
    )
    assert machines_line(view.merge, view.state.benched) == "shares: rosa 75 %, lily 25 %"


def test_a_line_of_run_print_is_told_once_by_whoever_tells_it_first():
    view = LiveView()
    line = LinePrinted(text="epoch 1: 0.8", step=10, number=0)
    told = list(
        view.take([("events/rosa-0.jsonl", lines(line)), ("events/lily-1.jsonl", lines(line, Notice(text="x")))])
    )
    assert [record.event for record, _ in told].count(line) == 1
    again = LinePrinted(text="epoch 1: 0.8", step=10, number=1)
    assert len(list(view.take([("events/lily-1.jsonl", lines(again))]))) == 1


def test_lines_of_a_joined_machine_are_true_from_the_first_moment():
    assert silence_line("rosa", 0.2) == "rosa has not answered for 1 s; what runs here waits for it"
    assert run_line("first", Pace()) == "run first: starting, no step is done yet"
    assert (
        run_line("first", Pace(step=3, samples_per_s=1200.0)) == "run first: step 3, 1,200 samples/s over all machines"
    )
    assert "goes to rosa" in files_line("first", "rosa")
    assert over_line("first", Pace(step=20)) == "run first is over on this machine; its last step here was 20"
    assert state_line("lily", "here", "first") == "lily is here, in run first"
    assert "hears nothing" in state_line("lily", "away", None)
