"""A disk that is full for a while ends no worker and loses no event; checkpoints are tried again."""

import errno
import os

import pytest

from potluck.core.errors import CheckpointError, EventLogError
from potluck.engine.checkpoints import checkpoints
from potluck.events import log as event_log
from potluck.events.log import EventLog, read_records
from potluck.events.types import CheckpointSaved, Notice
from tests.training import train


class Disk:
    """Stands between the event log and the kernel: while full, a write takes a part of the bytes or nothing."""

    def __init__(self, monkeypatch):
        self.is_full = False
        self._write = os.write
        monkeypatch.setattr(event_log.os, "write", self.write)

    def write(self, file, data):
        if self.is_full and os.fstat(file).st_size:
            self._write(file, bytes(data)[:3])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._write(file, data)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def texts(path):
    return [record.event.text for record in read_records(path)]


def test_events_wait_for_space_in_order_and_none_is_lost(disk, tmp_path):
    path = tmp_path / "rosa-0.jsonl"
    log = EventLog(path)
    log.append(Notice(text="0"))
    disk.is_full = True
    for number in range(1, 4):
        log.append(Notice(text=str(number)))
    assert log.is_waiting
    assert texts(path) == ["0"]
    log.sync()
    disk.is_full = False
    log.append(Notice(text="4"))
    assert not log.is_waiting
    log.finish()
    log.close()
    assert texts(path) == ["0", "1", "2", "3", "4"]
    assert [record.sequence for record in read_records(path)] == [0, 1, 2, 3, 4]


def test_whole_lines_that_still_fit_stay_where_readers_have_seen_them(tmp_path, monkeypatch):
    path = tmp_path / "rosa-0.jsonl"
    log = EventLog(path)
    with monkeypatch.context() as full:
        full.setattr(event_log.os, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        for number in range(4):
            log.append(Notice(text=str(number)))
    assert texts(path) == []
    really = os.write
    with monkeypatch.context() as nearly:
        nearly.setattr(event_log.os, "write", lambda file, data: really(file, bytes(data)[: len(data) * 3 // 5]))
        log.sync()
        assert texts(path) == ["0", "1"]
        log.sync()
        seen = texts(path)
        assert seen[:2] == ["0", "1"]
    log.finish()
    log.close()
    assert texts(path) == ["0", "1", "2", "3"]


def test_a_disk_that_stays_full_is_an_error_at_the_end_and_not_before(disk, tmp_path, monkeypatch):
    log = EventLog(tmp_path / "rosa-0.jsonl")
    log.append(Notice(text="0"))
    disk.is_full = True
    log.append(Notice(text="1"))
    with pytest.raises(EventLogError, match="cannot be written") as raised:
        log.finish(patience_s=0.0)
    assert "free space" in raised.value.fix
    monkeypatch.setattr(event_log, "_MOST_WAITING_BYTES", 100)
    with pytest.raises(EventLogError):
        for _ in range(10):
            log.append(Notice(text="x"))
    log.close()


@pytest.fixture
def full_for_checkpoints(monkeypatch):
    """Checkpoints do not fit, as often as the test says."""
    tries = []

    def write(path, state, write=checkpoints.write_checkpoint):
        tries.append(path.name)
        if len(tries) <= write_fails[0]:
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            raise CheckpointError(f"{path} cannot be written: {full.strerror}", fix="free space") from full
        return write(path, state)

    write_fails = [0]
    monkeypatch.setattr(checkpoints, "write_checkpoint", write)
    return write_fails, tries


def test_a_checkpoint_that_does_not_fit_does_not_end_training(full_for_checkpoints, workplace):
    fails, _ = full_for_checkpoints
    fails[0] = 1
    _, step = train("one", epochs=2)
    (events,) = (workplace / "experiments" / "one" / "events").glob("*.jsonl")
    told = [record.event for record in read_records(events)]
    assert [event.step for event in told if isinstance(event, CheckpointSaved)] == [step]
    assert any("training goes on" in event.text for event in told if isinstance(event, Notice))


def test_the_last_checkpoint_waits_for_space_and_a_disk_that_stays_full_is_an_error(
    full_for_checkpoints, workplace, monkeypatch
):
    from potluck.engine.steps import saving

    fails, tries = full_for_checkpoints
    fails[0] = 3
    monkeypatch.setattr(saving, "_LOOK_S", 0.01)
    train("one", epochs=1)
    assert len(tries) == 4
    fails[0] = 10**9
    monkeypatch.setattr(saving, "_LAST_SAVE_S", 0.05)
    with pytest.raises(CheckpointError, match="No space left"):
        train("two", epochs=1)
