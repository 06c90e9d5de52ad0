"""A crash shows the frames of the script's author, and nobody else's."""

import subprocess
import sys

from potluck.meeting.workers.crash import crash_text
from potluck.meeting.workers.own_frames import own_frames

CODE = """
import runpy, sys
from pathlib import Path
from potluck.meeting.workers.main import work; from potluck.meeting.workers.messages import ScriptTask
work(ScriptTask(entry="train.py", arguments=[]), Path(sys.argv[1]))
"""
SCRIPT = """
import torch

from part import first

def step(model):
    return model(torch.zeros(2, 3))

first(step, torch.nn.Linear(4, 1))
"""
PART = """
def first(step, model):
    return step(model)
"""


def crash_of(folder, script=SCRIPT):
    (folder / "train.py").write_text(script)
    (folder / "part.py").write_text(PART)
    done = subprocess.run([sys.executable, "-c", CODE, folder], capture_output=True, text=True, check=False)
    return done.stderr


def test_a_real_crash_keeps_the_frames_of_the_scripts_folder(tmp_path):
    whole = crash_of(tmp_path)
    assert "runpy" in whole
    assert "torch/nn/modules" in whole
    short = own_frames(whole[whole.index("Traceback") :].strip(), tmp_path)
    lines = short.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line for line in lines if line.startswith("  File")] == [
        '  File "<string>", line 5, in <module>',
        '  File "train.py", line 9, in <module>',
        '  File "part.py", line 3, in first',
        '  File "train.py", line 7, in step',
    ]
    assert "    return model(torch.zeros(2, 3))" in lines
    assert lines[-1].startswith("RuntimeError: mat1 and mat2 shapes")


def test_frames_of_potluck_are_left_out_wherever_it_is_installed(tmp_path):
    script = f"from potluck.core.plain_file import read_plain\nread_plain({str(tmp_path / 'missing')!r})\n"
    whole = crash_of(tmp_path, script)
    assert "potluck/core/plain_file.py" in whole
    short = own_frames(whole[whole.index("Traceback") :].strip(), tmp_path)
    assert 'File "train.py", line 2' in short
    assert "potluck/core" not in short


def test_chained_exceptions_keep_their_own_frames(tmp_path):
    script = "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('no') from error\n"
    short = own_frames(crash_of(tmp_path, script), tmp_path)
    assert "runpy" not in short
    assert short.count("Traceback (most recent call last):") == 2
    assert short.count('  File "train.py"') == 2
    assert "The above exception was the direct cause of the following exception:" in short


def test_a_traceback_without_the_authors_frames_says_where_it_happened(tmp_path):
    import json

    trace = f'Traceback (most recent call last):\n  File "{json.__file__}", line 3, in loads\n    x()\nValueError: no'
    assert own_frames(trace, tmp_path) == trace


def test_what_is_told_of_a_crash_names_the_exception_once(tmp_path):
    trace = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\nValueError: no'
    assert crash_text(1, "", trace, tmp_path).count("ValueError: no") == 1
    assert crash_text(-9, "last words", "", tmp_path) == "ended by SIGKILL\nlast words"
