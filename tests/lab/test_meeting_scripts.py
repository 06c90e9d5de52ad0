"""The user's own script on two machines: crashes are shown once and healed, missing packages before the start."""

import re
import signal
import time

import pytest

from benchmarks.support.gathering import SMALL, Gathering

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(200)]
PAIR = """
machines:
  - {name: rosa, cores: 0.9, memory: 3G, resolves: false}
  - {name: lily, cores: 0.9, memory: 3G, resolves: false}
"""
SCRIPT = """
import os, pathlib, sys, time, torch, potluck
from torch import nn
from torch.utils.data import TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(640, 8), torch.randint(3, (640,)))
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = potluck.start()
model, optimizer = run.prepare(model, optimizer)
loader = run.loader(data, global_batch=64)
marker = pathlib.Path(sys.argv[1] + os.environ["POTLUCK_NAME"])
for epoch in run.epochs(6):
    for inputs, targets in loader:
        if run.step == 12 and marker.name == "crash-lily" and not marker.exists():
            marker.touch()
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        run.backward(nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)
"""


def test_crashes_missing_packages_and_choices_of_machines(tmp_path):
    with Gathering(tmp_path, PAIR) as gathering:
        gathering.host().expect("rosa is here", 60)
        joined = gathering.join("lily")
        code = gathering.place("lily") / "code"
        code.mkdir()
        (code / "train.py").write_text(SCRIPT)
        (code / "needy.py").write_text("import potluck\nimport surely_not_installed\n")

        crashed = gathering.start("lily", "run", code / "train.py", tmp_path / "crash-")
        assert crashed.wait(90) == 0, crashed.output
        # In words and in the traceback, then what the doctor knows about it.
        assert crashed.output.count("RuntimeError: CUDA out of memory") == 1, crashed.output
        assert crashed.output.count("cause: the batch does not fit into the GPU's memory") == 1
        assert "fix: lower --micro-batch" in crashed.output
        assert crashed.output.count("worker lily-1 crashed on lily; it starts again") == 1
        assert "Traceback (most recent call last)" in crashed.output
        steps = [record.event.step for record in gathering.steps("train-1", "lily")]
        assert max(steps) == 60  # healed, and there at the end
        assert "train-1: finished" in crashed.output

        status, output = gathering.run("rosa", "run", code / "needy.py")
        assert status == 1
        for machine in ("rosa", "lily"):
            assert f"{machine} does not have surely_not_installed" in output, output
            assert re.search(rf"on {machine}: \S+ -m pip install surely_not_installed", output)
        assert not gathering.steps("needy-1")

        # A run that only lily trains, started and stopped from rosa's terminal.
        alone = gathering.start("rosa", "train", *SMALL, "--epochs", "500", "--not-here", "--experiment-name", "away")
        gathering.wait_for_step("away", 5)
        status, output = gathering.run("lily", "train", *SMALL, "--experiment-name", "busy")
        assert status == 1
        assert "lily still works on run away" in output
        assert "potluck stop away" in output
        asked_at = time.monotonic()
        alone.send_signal(signal.SIGINT)
        assert alone.wait(30) == 130, alone.output
        print(f"from Ctrl-C to the end of the display: {time.monotonic() - asked_at:.1f} s")
        assert {file.stem for file in gathering.home_run("away").glob("events/*")} == {"lily-0"}
        stopped_at = gathering.last_step("away")
        at_epoch_end = stopped_at % 10 == 0
        name = f"model_epoch_{-(-stopped_at // 10)}{'' if at_epoch_end else f'_step_{stopped_at}'}.pth"
        assert (gathering.home_run("away") / "checkpoints" / name).is_file(), alone.output + joined.output

        # It goes on where it was, on machines of which none has the checkpoint but the host.
        (gathering.local_run("lily", "away") / "checkpoints").rename(tmp_path / "gone")
        status, output = gathering.run(
            *("rosa", "train", "--resume", "--experiment-name", "away", "--machines", "lily"),
            *("--epochs", str(stopped_at // 10 + 2)),
        )
        assert status == 0, output
        assert f"going on after step {stopped_at}" in output
        assert "away: finished" in output

        status, output = gathering.run("rosa", "train", *SMALL, "--machines", "lilly")
        assert status == 1
        assert "did you mean 'lily'" in output
        assert joined.returncode is None
        assert "Traceback" not in joined.output.split("worker lily-1 on this machine crashed")[0]
