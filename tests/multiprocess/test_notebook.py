"""The notebook of examples/ as its reader runs it: a kernel on the host, and a machine that has joined."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.multiprocess.command import Command
from tests.multiprocess.test_meeting_door import RealHost, free_port

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def printed_by_cells(notebook: Path) -> list[str]:
    """What each code cell printed."""
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    return ["".join("".join(output["text"]) for output in cell["outputs"] if "text" in output) for cell in cells]


@pytest.mark.real_world
@pytest.mark.timeout(400)
def test_the_notebook_trains_on_both_machines_and_uses_the_model(workplace):
    shutil.copy(NOTEBOOK, "notebook.ipynb")
    host = RealHost(free_port(), "--devices", "cpu")
    lily = Command("join", host.invitation, "--name", "lily", "--devices", "cpu", home="lily")
    try:
        lily.wait_for("waiting for work")
        host.wait_for("lily is here")
        execute = "from nbclient.cli import main; main()"
        command = [sys.executable, "-c", execute, "--inplace", "--timeout=300", "notebook.ipynb"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=330)
        assert done.returncode == 0, done.stderr
    finally:
        lily.signal(signal.SIGINT)
        lily.finish(60)
        host.end()
    status, _, _, training, right = printed_by_cells(Path("notebook.ipynb"))
    assert "rosa (host)" in status
    assert "run squares-1 on rosa (cpu), lily (cpu)" in training
    assert "36 of 36" in training
    assert "\x1b" not in status + training  # a cell shows lines, and cannot redraw them
    for machine in ("rosa", "lily"):
        assert int(re.search(rf"(?m)^{machine} +([\d,]+)", training)[1].replace(",", "")) > 0
    assert float(right.partition("%")[0]) > 90


def test_the_saved_notebook_shows_what_its_cells_printed():
    status, _, _, training, right = printed_by_cells(NOTEBOOK)
    assert "rosa (host)" in status
    assert "squares-1: finished" in training
    assert right.endswith("of 256 other images are right\n")
