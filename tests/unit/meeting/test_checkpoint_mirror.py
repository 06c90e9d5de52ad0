"""A successor copies checkpoints beside the host's state, and never holds one up for the other."""

import errno
import threading
import time

import pytest

from potluck.core.run_folder import RunFolder
from potluck.meeting.agent import checkpoint_mirror
from potluck.meeting.agent.checkpoint_mirror import CheckpointMirror
from potluck.meeting.client import checkpoint_fetch
from potluck.meeting.client.client import HostSilentError
from potluck.meeting.home import HostMembership
from potluck.meeting.succession.state_copy import CheckpointName

MEMBERSHIP = HostMembership(
    machine="lily", host="rosa", address="127.0.0.1", port=29500, fingerprint="00", credential="x"
)
NEWEST = CheckpointName(name="model_epoch_1.pth", size=3, changed_ns=1)


class FakeClient:
    """Gives a file; the first `cut` times only a part of it."""

    cut = 0
    asked = 0
    error = None
    name = NEWEST.name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def fetch_into(self, path, place, is_over):
        assert path == "/runs/long/checkpoint"
        assert not is_over()
        FakeClient.asked += 1
        if FakeClient.error is not None:
            raise FakeClient.error
        FakeClient.cut -= 1
        with place(FakeClient.name) as file:
            file.write(b"ab" if FakeClient.cut >= 0 else b"abc")
            if FakeClient.cut >= 0:
                raise HostSilentError("in part only", fix="wait")
        return FakeClient.name


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    FakeClient.cut, FakeClient.asked, FakeClient.error, FakeClient.name = 0, 0, None, NEWEST.name
    monkeypatch.setattr(checkpoint_fetch.HostClient, "of", lambda *_, **__: FakeClient())
    monkeypatch.setattr(checkpoint_mirror, "_LOOK_S", 0.01)
    monkeypatch.setattr(checkpoint_mirror, "_SILENT_S", 0.01)
    told, is_over = [], threading.Event()
    mirror = CheckpointMirror(MEMBERSHIP, told.append, is_over)
    mirror.start()
    yield mirror, told
    is_over.set()
    mirror.join()


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def wait_for(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_checkpoint_that_came_in_part_is_fetched_again(mirror, folder):
    FakeClient.cut = 2
    mirror[0].want({"long": (folder, NEWEST)})
    here = folder.checkpoints_dir / NEWEST.name
    wait_for(here.exists)
    assert here.read_bytes() == b"abc"
    assert mirror[1] == []


def test_a_full_disk_is_told_once_and_not_tried_every_second(mirror, folder):
    FakeClient.error = OSError(errno.ENOSPC, "No space left on device")
    mirror[0].want({"long": (folder, NEWEST)})
    wait_for(lambda: mirror[1])
    time.sleep(0.1)
    assert len(mirror[1]) == 1
    assert "checkpoints of run long are not copied" in mirror[1][0]
    assert FakeClient.asked == 1


def test_a_checkpoint_that_does_not_fit_is_not_begun(mirror, folder):
    mirror[0].want({"long": (folder, CheckpointName(name=NEWEST.name, size=1 << 60, changed_ns=1))})
    wait_for(lambda: mirror[1])
    assert "is full" in mirror[1][0]
    assert FakeClient.asked == 0


def test_the_host_gives_another_checkpoint_than_it_had_a_moment_ago(mirror, folder):
    FakeClient.name = "model_epoch_2.pth"
    mirror[0].want({"long": (folder, NEWEST)})
    wait_for((folder.checkpoints_dir / "model_epoch_2.pth").exists)
    time.sleep(0.1)
    assert FakeClient.asked == 1, "a damaged newest one on the host would be asked for without end"


def test_a_run_that_the_host_names_no_more_is_not_asked_for(mirror, folder):
    FakeClient.cut = 1 << 30
    mirror[0].want({"long": (folder, NEWEST)})
    wait_for(lambda: FakeClient.asked > 1)
    mirror[0].want({})
    time.sleep(0.1)
    asked = FakeClient.asked
    time.sleep(0.1)
    assert FakeClient.asked == asked
