"""The example script does what it says."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "own_script.py"


def test_the_example_is_short_and_has_five_potluck_lines():
    lines = SCRIPT.read_text().splitlines()
    assert len(lines) <= 40
    assert sum(line.rstrip().endswith(tuple(f"# {number}" for number in range(1, 6))) for line in lines) == 5


def test_the_example_learns_alone(workplace):
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=100, check=True)
    accuracy = float(done.stdout.split()[-1])
    assert accuracy > 0.8, done.stdout
    assert (workplace / "experiments" / "own_script-1" / "checkpoints" / "model_epoch_5.pth").is_file()
