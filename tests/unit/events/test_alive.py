"""A run is alive while a process holds one of its files, here or in the name of others."""

import multiprocessing
import os
import signal

import pytest

from potluck.core.run_folder import RunFolder
from potluck.events.alive import HostLocks, is_alive


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def test_a_host_says_that_a_run_goes_on_and_when_no_more(folder):
    vigils = HostLocks()
    assert not is_alive(folder)
    vigils.note(folder, goes_on=True)
    vigils.note(folder, goes_on=True)
    assert is_alive(folder)
    vigils.note(folder, goes_on=False)
    assert not is_alive(folder)
    assert not list(folder.path.iterdir())


def watch(folder, pipe):
    HostLocks().note(folder, goes_on=True)
    pipe.send("held")
    signal.pause()


def test_a_killed_host_leaves_no_living_run(folder):
    mine, theirs = multiprocessing.Pipe()
    host = multiprocessing.get_context("fork").Process(target=watch, args=(folder, theirs))
    host.start()
    assert mine.recv() == "held"
    assert is_alive(folder)
    os.kill(host.pid, signal.SIGKILL)
    host.join()
    host.close()
    assert not is_alive(folder)


def test_a_folder_that_is_gone_is_no_error(folder):
    gone = RunFolder(folder.path / "gone")
    vigils = HostLocks()
    vigils.note(gone, goes_on=True)
    vigils.note(gone, goes_on=False)
    assert not is_alive(gone)
