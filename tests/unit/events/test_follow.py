"""Following a file gives what reading it at the end gives, however it grows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import EventLogError
from potluck.events.follow import FollowedFile
from potluck.events.log import EventLog, read_records
from potluck.events.state import RunState, after_steps, replay
from potluck.events.types import Notice, Record, StepCommitted


def write(path, count):
    log = EventLog(path)
    for number in range(count):
        log.append(Notice(text=f"line {number}"))
    log.close()
    return path.read_bytes()


def drain(followed):
    found = []
    while records := followed.read():
        found += records
    return found


@given(st.lists(st.integers(0, 400), max_size=8))
def test_however_a_file_grows_every_event_comes_once_in_order(tmp_path_factory, cuts):
    folder = tmp_path_factory.mktemp("growing")
    content = write(folder / "whole.jsonl", 5)
    growing = folder / "growing.jsonl"
    growing.touch()
    followed, found = FollowedFile(growing), []
    for cut in [*sorted(cuts), len(content)]:
        growing.write_bytes(content[:cut])
        found += drain(followed)
    assert found == list(read_records(folder / "whole.jsonl"))
    assert followed.read() == []


def test_a_line_longer_than_a_block_is_read_whole(tmp_path):
    log = EventLog(tmp_path / "long.jsonl")
    log.append(Notice(text="x" * 700_000))
    log.append(Notice(text="y"))
    log.close()
    assert [record.event.text[0] for record in drain(FollowedFile(log.path))] == ["x", "y"]


def test_kinds_from_a_newer_version_are_passed_over(tmp_path):
    path = tmp_path / "newer.jsonl"
    line = b'{"sequence":9,"time":1.0,"event":{"type":"from_the_future","value":1}}\n'
    path.write_bytes(line + write(tmp_path / "known.jsonl", 1) + line)
    assert [record.event.text for record in drain(FollowedFile(path))] == ["line 0"]


def test_damage_is_named_with_its_line(tmp_path):
    path = tmp_path / "damaged.jsonl"
    content = write(tmp_path / "whole.jsonl", 3)
    path.write_bytes(content)
    followed = FollowedFile(path)
    drain(followed)
    path.write_bytes(content + b"nonsense\n")
    with pytest.raises(EventLogError, match="line 4 is damaged"):
        followed.read()


def test_another_file_under_the_same_name_is_read_from_its_start(tmp_path):
    path = tmp_path / "events.jsonl"
    write(path, 5)
    followed = FollowedFile(path)
    drain(followed)
    path.unlink()
    write(path, 2)
    assert len(drain(followed)) == 2


def test_steps_by_their_sums_give_the_state_of_steps_one_by_one():
    steps = [StepCommitted(step=n, epoch=0, samples=8, loss=1 / n, seconds=0.5, skipped=n == 2) for n in range(1, 5)]
    one_by_one = replay(Record(sequence=n, time=float(n), event=step) for n, step in enumerate(steps))
    assert after_steps(RunState(), steps[-1], lowest_step=1, at=3.0, samples=32, seconds=2.0, skipped=1) == one_by_one
