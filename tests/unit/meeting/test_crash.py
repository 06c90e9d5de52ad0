"""From what a crashed worker has left to one line and one traceback."""

import signal
import subprocess
import sys

import pytest

from potluck.meeting.crash import explain, last_traceback


def stderr_of(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr


def test_a_real_traceback_is_found_behind_other_output():
    noise = "warning: something\nTraceback (most recent call last):\n  File 'a', line 1\nOSError: survived\nmore\n"
    text = noise + stderr_of("def f():\n    raise ValueError('no\\n  second line')\nf()")
    reason, traceback = explain(1, text)
    assert reason == "ValueError: no"
    assert traceback.startswith("Traceback")
    assert "in f" in traceback
    assert traceback.endswith("second line")
    assert "survived" not in traceback


@pytest.mark.parametrize("cause", ["", " from error"])
def test_chained_exceptions_stay_together(cause):
    code = f"try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise RuntimeError('no'){cause}"
    reason, traceback = explain(1, "before\n" + stderr_of(code))
    assert reason == "RuntimeError: no"
    assert traceback.count("Traceback") == 2
    assert "ZeroDivisionError" in traceback
    assert "before" not in traceback


def test_a_chain_whose_beginning_is_cut_off_still_gives_its_end():
    text = stderr_of("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise RuntimeError('no')")
    assert last_traceback(text[50:]).startswith("Traceback")
    assert explain(1, text[50:])[0] == "RuntimeError: no"


def test_a_syntax_error_has_no_traceback_but_a_reason():
    reason, text = explain(1, stderr_of("x = ("))
    assert reason.startswith("SyntaxError")
    assert "x = (" in text


def test_a_recorded_traceback_comes_first():
    recorded = "Traceback (most recent call last):\n  File 'x', line 1\nKeyError: 'a'\n"
    assert explain(1, "other things", recorded) == ("KeyError: 'a'", recorded.strip())


def test_a_signal_is_named_with_what_it_may_mean():
    assert explain(-signal.SIGKILL, "")[0].startswith("ended by SIGKILL (")
    assert "memory ran out" in explain(-signal.SIGKILL, "")[0]
    assert explain(-200, "")[0] == "ended by signal 200"
    assert explain(3, "")[0] == "ended with code 3"
