"""A worker that is asked to stop ends in time, whatever its main thread waits for."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from potluck.engine.steps.stop_deadline import StopDeadline

pytestmark = pytest.mark.timeout(30)

WAITING = """
import os, signal, threading
from potluck.engine.steps.stop_deadline import StopDeadline
from potluck.engine.steps.stopping import StopRequest

def end(number):
    print("saved", flush=True)
    os._exit(128 + number)

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background of a script
deadline = StopDeadline(end, limit_s=0.3)
with deadline.watching():
    pass  # a script may train in several loops
with StopRequest().listening(), deadline.watching():
    deadline.allow()
    print("waits", flush=True)
    {wait}
"""


@pytest.mark.parametrize(
    "wait",
    [
        "threading.Event().wait()",
        # A wait in native code: no Python signal handler runs until it is over.
        "import ctypes; lock = ctypes.create_string_buffer(64); c = ctypes.CDLL(None);"
        "c.pthread_mutex_lock(lock); c.pthread_mutex_lock(lock)",
    ],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_waits_for_ever_ends_with_its_state_saved(wait, number):
    script = textwrap.dedent(WAITING).format(wait=wait)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        asked = time.monotonic()
        process.send_signal(number)
        assert process.stdout.readline() == "saved\n"
        assert process.wait() == 128 + number
        assert 0.3 <= time.monotonic() - asked < 5


def test_a_step_that_is_being_applied_is_never_given_up():
    ended = threading.Event()
    deadline = StopDeadline(lambda _: ended.set() or threading.Event().wait(), limit_s=0.0)
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with deadline.watching():
            deadline.allow()
            deadline.forbid()
            os.kill(os.getpid(), signal.SIGINT)
            assert not ended.wait(0.5)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_step_that_ends_in_time_is_not_disturbed():
    deadline = StopDeadline(lambda _: pytest.fail("ended"), limit_s=5.0)
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with deadline.watching():
            deadline.allow()
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert signal.set_wakeup_fd(-1) == -1
