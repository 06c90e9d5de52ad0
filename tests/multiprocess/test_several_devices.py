"""--devices on one machine: a worker on each device, one display, one exit code."""

import subprocess
import sys
from pathlib import Path

import pytest

from potluck.core.exit_codes import DIVERGED
from potluck.events.log import read_records
from potluck.events.types import StepCommitted

SCRIPT = """
import sys, torch, potluck
from torch.utils.data import TensorDataset

run = potluck.start()
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
model, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
loader = run.loader(TensorDataset(torch.ones(32, 2), torch.ones(32, 1)), global_batch=8)
for epoch in run.epochs(2):
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        run.backward(loss * float(sys.argv[1]) if run.step > 3 else loss)
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.timeout(200)
def test_a_worker_on_each_device_and_a_diverged_run_says_so_by_its_exit_code(workplace):
    (workplace / "mine.py").write_text(SCRIPT)

    def run(name, factor):
        command = [sys.executable, "-m", "potluck", "run", "--solo", "--devices", "cpu,cpu", "--experiment-name", name]
        done = subprocess.run([*command, "mine.py", factor], capture_output=True, text=True, timeout=90, check=False)
        files = sorted(Path("experiments", name, "events").glob("*.jsonl"))
        steps = [[one.event for one in read_records(file) if isinstance(one.event, StepCommitted)] for file in files]
        return done.returncode, done.stderr, steps

    code, told, steps = run("good", "1.0")
    assert code == 0, told
    assert told.count("potluck: run good on cpu") == 1  # one display, not one a worker
    assert [[one.step for one in own] for own in steps] == [list(range(1, 9))] * 2
    assert {sum(one.own_samples for one in both) for both in zip(*steps, strict=True)} == {8}
    code, told, _ = run("bad", "nan")
    assert code == DIVERGED, told
    assert told.count("Try a lower learning rate") == 1
