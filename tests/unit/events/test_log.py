import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.core.errors import EventLogError
from potluck.events.log import EventLog, is_being_written, read_records
from potluck.events.types import Notice, StepCommitted


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


@settings(max_examples=60, deadline=None)
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
    assert is_being_written(path)
    with pytest.raises(EventLogError, match="another process"):
        EventLog(path)
    log.close()
    assert not is_being_written(path)


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
