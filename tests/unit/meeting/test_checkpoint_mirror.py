"""A successor copies checkpoints beside the host's state, and never holds one up for the other."""

import errno
import threading
import time

import pytest

from potluck.core.run_folder import RunFolder
from potluck.meeting.agent import checkpoint_mirror
from potluck.meeting.agent.checkpoint_mirror import CheckpointMirror
from potluck.meeting.home import HostMembership
from potluck.meeting.succession.state_copy import CheckpointName

MEMBERSHIP = HostMembership(
    machine="lily", host="rosa", address="127.0.0.1", port=29500, fingerprint="00", credential="x"
)
NEWEST = CheckpointName(name="model_epoch_1.pth", size=3, changed_ns=1)


class FakeClient:
    """Gives a file in parts; the first `cut` times only a part of it."""

    cut = 0
    error = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def fetch_into(self, path, file, is_over):
        assert path == "/runs/long/checkpoint"
        assert not is_over()
        if FakeClient.error is not None:
            raise FakeClient.error
        FakeClient.cut, content = FakeClient.cut - 1, b"ab" if FakeClient.cut > 0 else b"abc"
        file.write(content)
        return {"content-disposition": f'attachment; filename="{NEWEST.name}"'}


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    FakeClient.cut, FakeClient.error = 0, None
    monkeypatch.setattr(checkpoint_mirror.HostClient, "of", lambda *_, **__: FakeClient())
    monkeypatch.setattr(checkpoint_mirror, "_AGAIN_S", 0.01)
    told, is_over = [], threading.Event()
    mirror = CheckpointMirror(MEMBERSHIP, told.append, is_over)
    mirror.start()
    mirror.want("long", RunFolder(tmp_path), NEWEST)
    yield mirror, told
    is_over.set()
    mirror.join()


def wait_for(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_checkpoint_that_came_in_part_is_fetched_again(mirror, tmp_path):
    FakeClient.cut = 2
    here = RunFolder(tmp_path).checkpoints_dir / NEWEST.name
    wait_for(here.exists)
    assert here.read_bytes() == b"abc"
    assert mirror[1] == []


def test_a_full_disk_is_told_once(mirror):
    FakeClient.error = OSError(errno.ENOSPC, "No space left on device")
    mirror[0]._had.clear()
    mirror[0].want("long", mirror[0]._wanted["long"][0], CheckpointName(name="model_epoch_2.pth", size=9, changed_ns=2))
    wait_for(lambda: mirror[1])
    time.sleep(0.1)
    assert len(mirror[1]) == 1
    assert "model_epoch_2.pth of run long is not copied" in mirror[1][0]
