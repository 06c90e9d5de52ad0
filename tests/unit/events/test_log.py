import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.core.errors import EventLogError
from potluck.events.alive import is_held
from potluck.events.log import EventLog, read_records
from potluck.events.types import Evaluated, MetricsLogged, Notice, StepCommitted, finite


def write(path, *texts):
    log = EventLog(path)
    for text in texts:
        log.append(Notice(text=text))
    log.close()


def texts(path):
    return [record.event.text for record in read_records(path)]


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "events" / "rosa-0.jsonl"
    write(path, "one", "two\nlines")
    assert texts(path) == ["one", "two\nlines"]
    assert [record.sequence for record in read_records(path)] == [0, 1]


def test_a_loss_that_is_not_a_number_becomes_null(tmp_path):
    path = tmp_path / "log"
    log = EventLog(path)
    log.append(StepCommitted(step=1, epoch=0, samples=1, loss=float("nan"), seconds=0.1))
    log.close()
    assert next(read_records(path)).event.loss is None


@settings(max_examples=60)
@given(cut=st.integers(min_value=0, max_value=10_000))
def test_a_file_cut_anywhere_reads_as_a_prefix_and_can_be_continued(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("log") / "log"
    write(path, "one", "two", "three")
    content = path.read_bytes()
    path.write_bytes(content[: cut % (len(content) + 1)])
    kept = texts(path)
    assert kept == ["one", "two", "three"][: len(kept)]
    write(path, "four")
    assert texts(path) == [*kept, "four"]
    assert [record.sequence for record in read_records(path)] == list(range(len(kept) + 1))


def test_damage_before_the_end_is_not_passed_over(tmp_path):
    path = tmp_path / "log"
    write(path, "one", "two")
    path.write_bytes(path.read_bytes().replace(b'"text":"one"', b'"text":"one'))
    with pytest.raises(EventLogError, match="line 1 is damaged"):
        texts(path)


def test_events_of_a_newer_potluck_are_passed_over(tmp_path):
    path = tmp_path / "log"
    write(path, "one")
    with path.open("ab") as file:
        file.write(b'{"sequence":1,"time":1.0,"event":{"type":"from_the_future","x":1}}\n')
    write(path, "two")
    assert texts(path) == ["one", "two"]


def test_a_file_has_one_writer(tmp_path):
    path = tmp_path / "log"
    log = EventLog(path)
    assert is_held(path)
    with pytest.raises(EventLogError, match="another process"):
        EventLog(path)
    log.close()
    assert not is_held(path)


def test_a_reader_beside_the_writer_sees_whole_lines_only(tmp_path):
    path = tmp_path / "log"
    log = EventLog(path)
    done = threading.Event()

    def write_many():
        for number in range(2000):
            log.append(Notice(text=str(number) * 20))
        done.set()

    writer = threading.Thread(target=write_many)
    writer.start()
    while not done.is_set():
        seen = texts(path)
        assert seen == [str(number) * 20 for number in range(len(seen))]
    writer.join()
    log.close()


def test_numbers_that_json_lacks_are_read_back_as_none(tmp_path):
    path = tmp_path / "log"
    log = EventLog(path)
    for value in (float("nan"), float("inf"), -float("inf")):
        log.append(MetricsLogged(step=1, values={"a": finite(value)}))
        log.append(Evaluated(step=1, name="b", samples=1, values={"a": finite(value)}, seconds=1.0))
    log.close()
    assert {record.event.values["a"] for record in read_records(path)} == {None}


def test_a_line_that_does_not_fit_on_the_disk_is_taken_back_and_waits(tmp_path, monkeypatch):
    path = tmp_path / "log"
    log = EventLog(path)
    log.append(Notice(text="one"))

    def half(file, line, write=os.write):
        return write(file, bytes(line)[: len(line) // 2])

    with monkeypatch.context() as full:
        full.setattr(os, "write", half)
        log.append(Notice(text="two"))
        assert texts(path) == ["one"]
        assert path.read_bytes().endswith(b"\n")
    log.append(Notice(text="three"))
    log.close()
    assert texts(path) == ["one", "two", "three"]


def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    path = tmp_path / "log"
    log = EventLog(path)
    ready, wait = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(wait)
        os.read(ready, 1)
        os._exit(0)
    os.close(ready)
    log.close()
    again = EventLog(path)  # while the child still lives
    again.close()
    os.close(wait)
    os.waitpid(child, 0)


def test_asking_whether_a_run_lives_does_not_refuse_its_start(tmp_path):
    path = tmp_path / "log"
    EventLog(path).close()
    stop = threading.Event()
    asking = threading.Thread(target=lambda: [is_held(path) for _ in iter(stop.is_set, True)])
    asking.start()
    for _ in range(200):
        EventLog(path).close()
    stop.set()
    asking.join()


def test_a_very_long_line_is_found_again(tmp_path):
    path = tmp_path / "log"
    write(path, "short", "long" * 50_000)
    with path.open("ab") as file:
        file.write(b"x" * 200_000)  # half a line
    write(path, "after")
    assert texts(path) == ["short", "long" * 50_000, "after"]
    assert [record.sequence for record in read_records(path)] == [0, 1, 2]


def test_a_closed_log_says_so(tmp_path):
    log = EventLog(tmp_path / "log")
    log.close()
    with pytest.raises(EventLogError, match="the run is closed"):
        log.append(Notice(text="late"))
