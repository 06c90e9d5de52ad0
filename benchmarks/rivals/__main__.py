"""Time to the same held-out loss on slow links: hivemind, torchft's own DiLoCo and LocalSGD, and Potluck.

    python -m benchmarks.rivals --cluster wifi --who hivemind-8bit --json
    python -m benchmarks.rivals --cluster dsl --who potluck --exchange int4 --json

All train the byte model of benchmarks.slow_links from the same first weights on the same text, at a learning rate that
rises and then stays. The loss to be reached is that of exact training after --target-steps steps of 128 samples
(--target gives it; without, one process trains it first). hivemind needs a virtual environment of its own, whose Python
is --python. The clock starts when every worker is ready; models that the first machine keeps are judged afterwards.
"""

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.rivals.recording import BATCH, Judged, judge, rate_after, seconds_without
from benchmarks.support import byte_model
from benchmarks.support.byte_model import LEARNING_RATE, losses, num_parameters, windows
from benchmarks.support.crew import LIGHTHOUSE
from benchmarks.support.lab_error import exit_on_lab_error
from benchmarks.support.lab_machines import LabMachines
from benchmarks.support.slow_link_speed import SpeedLab, error_line
from lab import Lab, LabError, Process

ROWS = 24_000
_LOCAL = {"local_updates": True, "target_batch": 2048}
BY_CORES = "by cores"
"""As a local batch: the machine's part of 128, by its cores."""
LIGHTHOUSE_PORT = 29510
_TOLD = re.compile(r"epochs \d+|exchanges \d+")


@dataclass(frozen=True)
class Rival:
    """A module of this folder and its settings."""

    module: str
    settings: dict[str, Any]


def _hivemind(compression: str, **changed: Any) -> Rival:
    settings = {"compression": compression, "target_batch": 1024, "local_batch": 16, "learning_rate": 2 * LEARNING_RATE}
    return Rival("with_hivemind", {**settings, "matchmaking": 3.0, "delayed": False, "local_updates": False, **changed})


def _torchft(method: str, **changed: Any) -> Rival:
    settings = {"method": method, "sync_every": 16, "global_batch": BATCH, "learning_rate": LEARNING_RATE}
    return Rival("with_torchft", {**settings, "rounds": 1_000_000, "local_batch": BY_CORES, **changed})


RIVALS = {
    "hivemind-fp16": _hivemind("fp16"),
    "hivemind-8bit": _hivemind("8bit"),
    "hivemind-8bit-local": _hivemind("8bit", **_LOCAL, local_batch=BY_CORES, learning_rate=LEARNING_RATE),
    "hivemind-8bit-local-small": _hivemind("8bit", **_LOCAL, learning_rate=LEARNING_RATE / 2),
    "torchft-diloco": _torchft("diloco"),
    "torchft-local-sgd": _torchft("local-sgd"),
}


def main() -> None:
    """Run one program, judge it, and end with one JSON line if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="wifi")
    parser.add_argument("--who", choices=[*RIVALS, "potluck"], required=True)
    parser.add_argument("--exchange", default="int4", help="of Potluck")
    parser.add_argument("--seconds", type=float, default=150.0, help="of a rival's run")
    parser.add_argument("--steps", type=int, default=300, help="of Potluck's run")
    parser.add_argument("--batch", type=int, default=BATCH, help="global batch of Potluck's run")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--target", type=float, help="the held-out loss to be reached")
    parser.add_argument("--target-steps", type=int, default=200)
    parser.add_argument("--python", default=sys.executable, help="of the environment that has the rival")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other settings of the rival")
    parser.add_argument("--kill-after", type=float, help="kill the second machine after so many seconds of training")
    parser.add_argument("--keep", type=Path, help="a new folder for what the workers print, or for Potluck's run")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    target = options.target if options.target is not None else exact_loss(options.rows, options.target_steps)
    print(f"held-out loss to be reached: {target:.4f}", flush=True)
    with exit_on_lab_error(), tempfile.TemporaryDirectory() as scratch:
        settings, judged, killed_at = run(options, Path(scratch))
        stall = killed_at and seconds_without(Path(scratch, "record"), "rosa", killed_at)
    reached = judged.reached(target)
    figures = {
        "who": options.who,
        "cluster": options.cluster,
        "parameters": num_parameters(options.rows),
        "settings": settings,
        "target_loss": round(target, 4),
        "reached_after_s": reached and round(reached[0], 1),
        "reached_after_samples": reached and reached[1],
        "samples_per_s": round(judged.samples_per_s, 1),
        "samples": judged.samples,
        "without_progress_s": stall and round(stall[0], 2),
        "usual_s": stall and round(stall[1], 2),
        "points": [(at, samples, round(loss, 4)) for at, samples, loss in judged.points],
    }
    for at, samples, loss in judged.points:
        print(f"{at:7.1f} s {samples:8,} samples: held-out loss {loss:.4f}")
    print(f"{options.who}: reached after {figures['reached_after_s']} s, {figures['samples_per_s']} samples/s")
    if stall:
        print(f"after the kill {stall[0]:.2f} s without an update of all machines, where {stall[1]:.2f} s were usual")
    if options.json:
        print(json.dumps(figures))


def run(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], Judged, float | None]:
    """One run; the settings, what became of it, and when a machine was killed."""
    (folder / "record").mkdir()
    if options.who == "potluck":
        return run_potluck(options, folder)
    rival = RIVALS[options.who]
    settings = dict(rival.settings)
    for word in options.set:
        name, _, value = word.partition("=")
        settings[name] = json.loads(value) if value in ("true", "false") else value
    with Lab(options.cluster) as lab:
        machines = LabMachines(lab)
        first = lab.machines[0]
        more: list[str] = []
        if rival.module == "with_torchft":
            first.start([*LIGHTHOUSE, "--bind", f"{first.address}:{LIGHTHOUSE_PORT}"])
            more = ["--lighthouse", f"http://{first.address}:{LIGHTHOUSE_PORT}", "--replicas", str(len(machines.names))]
        workers = []
        for number, name in enumerate(machines.names):
            words = {**settings, "machine": name, "number": number, "folder": folder, "rows": options.rows}
            words |= {"address": lab[name].address, "seconds": options.seconds}
            if settings["local_batch"] == BY_CORES:
                words["local_batch"] = round(BATCH * machines.cores[name] / sum(machines.cores.values()))
            command = [options.python, "-m", f"benchmarks.rivals.{rival.module}", *more, *as_options(words)]
            workers.append(machines.start(name, command, {"GLOO_SOCKET_IFNAME": "eth0"}))
        machines.let_go(workers, folder / "go")
        killed_at = strike(options.kill_after, lab, workers[0], folder / "record")
        if killed_at is not None:
            del workers[1]
        for worker in workers:
            if worker.wait(options.seconds + 120):
                raise LabError(f"the worker on {worker.machine} failed:\n{worker.output}", fix="see its traceback")
        for worker in workers:
            print(f"{worker.machine}: {' '.join(sorted(set(_TOLD.findall(worker.output))))}", flush=True)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{options.who}-{options.cluster}-{worker.machine}.log").write_text(worker.output)
    return settings, judge(folder / "record", options.rows, until=killed_at or float("inf")), killed_at


def strike(after_s: float | None, lab: Lab, worker: Process, record: Path) -> float | None:
    """Kill the second machine so many seconds after the first model was kept; the time, or None if nobody is killed."""
    if after_s is None:
        return None
    while not list(record.glob("*.pt")):
        if worker.returncode is not None:
            raise LabError("the run has ended before its first models", fix=f"see its output:\n{worker.output}")
        time.sleep(0.2)
    time.sleep(after_s)
    killed_at = time.time()
    lab.machines[1].kill()
    return killed_at


def run_potluck(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], Judged, float | None]:
    """`potluck run --exchange MODE` on machines that have joined a host, through their gates."""
    with SpeedLab(options.cluster, folder) as lab:
        host = lab.machines.names[0]
        script = lab.gathering.place(host) / "with_potluck.py"
        script.write_text(Path(__file__).with_name("with_potluck.py").read_text())
        keep = [word for name in lab.machines.names for word in ("--keep", name)]
        settings = {"exchange": options.exchange, "steps": options.steps, "batch": options.batch}
        words = as_options({**settings, "folder": folder / "record", "rows": options.rows})[2:]  # not the exchange
        process = lab.gathering.start(host, "run", "--exchange", options.exchange, *keep, script.name, *words)
        killed_at = strike(options.kill_after, lab.gathering.lab, process, folder / "record")
        if process.wait(900):
            raise LabError(error_line(process.output), fix="see the output of potluck run")
        if options.keep:
            shutil.copytree(lab.gathering.place(host) / "experiments", options.keep)
    return settings, judge(folder / "record", options.rows, until=killed_at or float("inf")), killed_at


def as_options(settings: dict[str, Any]) -> list[str]:
    """Words of a command line: --name value, or --name for what is True."""
    words: list[str] = []
    for name, value in settings.items():
        if value is not False:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words


def exact_loss(rows: int, num_steps: int) -> float:
    """The held-out loss of one process that trains the same number of samples exactly."""
    texts, targets = windows(num_steps * BATCH, seed=1).training.tensors
    model, optimizer = byte_model.make(rows, 0)
    for step in range(num_steps):
        part = slice(step * BATCH, (step + 1) * BATCH)
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * rate_after(step * BATCH)
        losses(model, texts[part], targets[part]).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return byte_model.held_out_loss(model)


if __name__ == "__main__":
    main()
