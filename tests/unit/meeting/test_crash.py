"""From what a crashed worker has left to one line and one traceback."""

import signal
import subprocess
import sys

import pytest

from potluck.doctor.explain import explain
from potluck.meeting.workers.crash import last_traceback, last_words


def stderr_of(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr


def test_a_real_traceback_is_found_behind_other_output():
    noise = "warning: something\nTraceback (most recent call last):\n  File 'a', line 1\nOSError: survived\nmore\n"
    text = noise + stderr_of("def f():\n    raise ValueError('no\\n  second line')\nf()")
    reason, traceback = last_words(1, text)
    assert reason == "ValueError: no"
    assert traceback.startswith("Traceback")
    assert "in f" in traceback
    assert traceback.endswith("second line")
    assert "survived" not in traceback


@pytest.mark.parametrize("cause", ["", " from error"])
def test_chained_exceptions_stay_together(cause):
    code = f"try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise RuntimeError('no'){cause}"
    reason, traceback = last_words(1, "before\n" + stderr_of(code))
    assert reason == "RuntimeError: no"
    assert traceback.count("Traceback") == 2
    assert "ZeroDivisionError" in traceback
    assert "before" not in traceback


def test_a_chain_whose_beginning_is_cut_off_still_gives_its_end():
    text = stderr_of("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise RuntimeError('no')")
    assert last_traceback(text[50:]).startswith("Traceback")
    assert last_words(1, text[50:])[0] == "RuntimeError: no"


def test_a_syntax_error_has_no_traceback_but_a_reason():
    reason, text = last_words(1, stderr_of("x = ("))
    assert reason.startswith("SyntaxError")
    assert "x = (" in text


def test_a_recorded_traceback_comes_first():
    recorded = "Traceback (most recent call last):\n  File 'x', line 1\nKeyError: 'a'\n"
    assert last_words(1, "other things", recorded) == ("KeyError: 'a'", recorded.strip())


def test_a_signal_is_named_and_the_doctor_knows_what_it_may_mean():
    assert last_words(-signal.SIGKILL, "")[0] == "ended by SIGKILL"
    assert last_words(-200, "")[0] == "ended by signal 200"
    assert last_words(3, "")[0] == "ended with code 3"
    for number, wanted in ((signal.SIGKILL, "memory ran out"), (signal.SIGSEGV, "driver"), (signal.SIGBUS, "/dev/shm")):
        (known,) = explain(last_words(-number, "")[0])
        assert wanted in known.cause
