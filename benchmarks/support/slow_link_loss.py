"""Held-out loss of the byte model after a whole run in one of Potluck's modes, on this computer's loopback.

What a mode costs in loss depends on the shares and not on the links, so workers take fixed shares and no lab is needed.
"""

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support import byte_model
from benchmarks.support.crew import LIGHTHOUSE
from benchmarks.support.free_port import free_port
from benchmarks.support.lab_machines import ROOT
from benchmarks.support.slow_link_speed import error_line

SECONDS_A_STEP = 4.0


@dataclass(frozen=True)
class Loss:
    """The held-out loss at the end, or the line with which the program refused the mode."""

    held_out_loss: float | None
    refused: str = ""


def measure_loss(
    mode: str,
    rows: int,
    *,
    batch: int,
    steps: int,
    seed: int,
    shares: Mapping[str, int],
    islands: str = "",
    round_steps: int | None = None,
) -> Loss:
    """One run of a worker for each machine; the shares are parts of the global batch, in any unit.

    `islands`, `round_steps`: what Potluck would choose on the slow links, which are not those of loopback.
    """
    address = f"127.0.0.1:{free_port()}"
    command = [*LIGHTHOUSE, "--bind", address]
    lighthouse = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    meeting = {
        "POTLUCK_LIGHTHOUSE": f"http://{address}",
        "POTLUCK_SECRET": secrets.token_hex(16),
        "POTLUCK_WORKERS": str(len(shares)),
        "POTLUCK_EXCHANGE": mode,
        "POTLUCK_RUN": "loss",
        **({} if round_steps is None else {"POTLUCK_ROUND_STEPS": str(round_steps)}),
        **({"POTLUCK_ISLANDS": islands} if mode == "islands" else {}),
    }
    amount = ["--rows", rows, "--steps", steps, "--batch", batch, "--seed", seed]
    command = [sys.executable, "-m", "benchmarks.support.byte_model", *map(str, amount)]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            return _train(command, meeting, shares, Path(scratch), steps)
    finally:
        lighthouse.kill()
        lighthouse.wait()


def _train(command: list[str], meeting: dict[str, str], shares: Mapping[str, int], scratch: Path, steps: int) -> Loss:
    workers, outputs = [], []
    for number, (name, share) in enumerate(shares.items()):
        place = scratch / name
        place.mkdir()
        told = {
            **os.environ,
            **meeting,
            "POTLUCK_WORKER": str(number),
            "POTLUCK_NAME": name,
            "POTLUCK_HOME": str(place / "home"),
            "POTLUCK_RUNS_DIR": str(place),
            "POTLUCK_SHARE": str(share),
            "POTLUCK_THREADS": "1",
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        }
        outputs.append(place / "output")
        with outputs[-1].open("wb") as file:
            workers.append(subprocess.Popen(command, cwd=ROOT, env=told, stdout=file, stderr=subprocess.STDOUT))
    try:
        codes = [worker.wait(120 + SECONDS_A_STEP * steps) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    printed = [output.read_text(errors="replace") for output in outputs]
    for code, text in zip(codes, printed, strict=True):
        if code:
            return Loss(None, refused=error_line(text))
    lines = [line for text in printed for line in text.splitlines() if line.startswith(byte_model.HELD_OUT)]
    if not lines:
        return Loss(None, refused=f"no held-out loss was printed: {error_line(printed[0])}")
    return Loss(float(lines[0].removeprefix(byte_model.HELD_OUT)))
