"""What does not end by itself is ended, with everything that it has started."""

import subprocess
import sys
import time

import psutil

from potluck.meeting.host.last_resort import end_tree

# A process that starts another in a session of its own, as an agent starts a crew, and neither listens to SIGTERM.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print(child.pid, flush=True)
{then}
"""


def start(then):
    process = subprocess.Popen([sys.executable, "-c", STUBBORN.format(then=then)], stdout=subprocess.PIPE)
    return process, int(process.stdout.readline())


def is_gone(pid, within_s=5.0):
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_a_process_is_ended_with_what_it_started_in_other_sessions():
    process, child = start("time.sleep(60)")
    with process:
        end_tree(process)
        assert process.returncode is not None
    assert is_gone(child)
    end_tree(process)  # twice is fine


def test_a_process_that_hangs_ends_in_time_and_leaves_nothing():
    began = time.monotonic()
    process, child = start(
        "from potluck.meeting.host.last_resort import EndBy\nEndBy(0.5, lambda text: print(text, flush=True)).start()\n"
        "time.sleep(60)"
    )
    with process:
        told = process.stdout.read().decode()
        assert process.wait(30) == 1
    assert time.monotonic() - began < 30
    assert "what was left has been killed" in told
    assert is_gone(child)
