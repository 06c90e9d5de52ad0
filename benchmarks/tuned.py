"""What tuning brings one machine: a plain PyTorch loop, Potluck without and with tuning, in turns.

    python -m benchmarks.tuned --json
    python -m benchmarks.tuned --models simple_cnn gpt2 --threads 2 --compile

Each of them is a process of its own, because the allocator belongs to the process. They take turns in slices of
about a second; while one trains, the others wait. Figures are medians of ratios of slices that follow each other: how
many times as fast as the plain loop. Potluck's processes have measured what suits them before the first slice.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.plain_loop import train_plainly
from potluck.core.run_options import TrainOptions
from potluck.core.settings import make_settings
from potluck.events.state import RunState
from potluck.events.types import Notice, Record, StepCommitted
from potluck.workloads.trainer import complete, train

MODELS = {"simple_cnn": ("small", 64), "resnet18": ("small", 32), "resnet50": ("small", 8), "bert": ("tiny", 16)}
MODELS |= {"gpt2": ("tiny", 16)}
"""Size and batch by model."""
WAYS = ("plain", "untuned", "tuned", "compiled")
WARM_UP_STEPS = 3
SLICE_S = 1.0
MOST_STEPS = 400


def main() -> None:
    """Measure every model on every number of threads, and end with one JSON line if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9, help="slices of each way")
    parser.add_argument("--compile", action="store_true", help="also what `potluck profile --compile` finds; minutes")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way is not None:
        train_in_slices(options.way, options.models[0], options.threads[0])
        return
    figures: dict[str, Any] = {"benchmark": "tuned"}
    for threads in options.threads:
        for model in options.models:
            measured = measure(model, threads, options.rounds, WAYS if options.compile else WAYS[:-1])
            figures[f"{model}, {threads} threads"] = measured
            print(
                f"{model:10} {threads} threads: plain {measured['plain_ms']:.3f} ms a sample; times as fast:",
                flush=True,
            )
            for way, ratio in measured["ratios"].items():
                print(f"    {way:8} {ratio:.3f}  {measured['words'][way]}", flush=True)
    if options.json:
        print(json.dumps(figures))


def measure(model: str, threads: int, num_rounds: int, ways: tuple[str, ...]) -> dict[str, Any]:
    """The processes in turns."""
    _, batch = MODELS[model]
    processes: dict[str, subprocess.Popen[str]] = {}
    words = {}
    try:
        for way in ways:  # one after the other: a trial beside others would show nothing
            processes[way] = start(way, model, threads)
            words[way] = read(processes[way])
        step_s = {way: one_slice(process, 2) for way, process in processes.items()}
        steps = max(2, round(SLICE_S / max(step_s.values())))
        rounds = [{way: one_slice(process, steps) for way, process in processes.items()} for _ in range(num_rounds)]
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    ratios = {way: round(statistics.median(each["plain"] / each[way] for each in rounds), 3) for way in ways[1:]}
    plain_s = statistics.median(each["plain"] for each in rounds)
    return {"plain_ms": round(1000 * plain_s / batch, 3), "ratios": ratios, "words": words}


def start(way: str, model: str, threads: int) -> "subprocess.Popen[str]":
    """A process that trains when it is told to."""
    command = [sys.executable, "-m", "benchmarks.tuned", "--way", way, "--models", model, "--threads", str(threads)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def read(process: "subprocess.Popen[str]") -> str:
    """The next line of the process."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        sys.exit("a training process has ended")
    return line.strip()


def one_slice(process: "subprocess.Popen[str]", steps: int) -> float:
    """Let the process train so many steps; the seconds of one."""
    assert process.stdin is not None
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    return float(read(process))


class Slices:
    """Inside a training process: trains on when a line on stdin says how many steps, and prints seconds a step."""

    def __init__(self) -> None:
        self.words = ""
        self._is_ready = False
        self._done = 0
        self._steps = WARM_UP_STEPS
        self._began_s = time.perf_counter()

    def step_done(self) -> None:
        """After every step; waits for stdin after the last of a slice."""
        self._done += 1
        if self._done < self._steps:
            return
        print((time.perf_counter() - self._began_s) / self._steps if self._is_ready else self.words, flush=True)
        self._is_ready = True
        self._done, self._steps = 0, int(sys.stdin.readline() or sys.exit())
        self._began_s = time.perf_counter()

    def __call__(self, record: Record, _: RunState) -> None:
        """Potluck's watcher."""
        if isinstance(record.event, Notice) and "tuned" in record.event.text:
            self.words = record.event.text
        if isinstance(record.event, StepCommitted):
            self.step_done()


def train_in_slices(way: str, model: str, threads: int) -> None:
    """The whole life of a training process."""
    torch.set_num_threads(threads)
    slices = Slices()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"POTLUCK_HOME": folder, "POTLUCK_TUNING": "1"}  # nothing was tuned before
        settings = settings_of(model, Path(folder), is_tuning=way in ("tuned", "compiled"))
        if way == "compiled":
            profile(model, threads)
        if way == "plain":
            for _ in train_plainly(settings):
                slices.step_done()
        else:
            train(settings, runs_dir=Path(folder), watch=slices)


def profile(model: str, threads: int) -> None:
    """Let this machine try torch.compile, too, and keep what it finds."""
    size, batch = MODELS[model]
    words = [
        "--model",
        model,
        "--model-size",
        size,
        "--global-batch",
        str(batch),
        "--seconds",
        "0.5",
        "--device",
        "cpu",
    ]
    command = [sys.executable, "-m", "potluck", "profile", "--solo", "--compile", "--json", *words]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)


def settings_of(model: str, folder: Path, *, is_tuning: bool) -> TrainOptions:
    """A run that lasts longer than any measurement."""
    size, batch = MODELS[model]
    return complete(
        make_settings(
            {
                "model": model,
                "model_size": size,
                "num_samples": batch * MOST_STEPS,
                "global_batch": batch,
                "epochs": 1,
                "device": "cpu",
                "seed": 0,
                "experiment_name": "run",
                "tuning": is_tuning,
            }
        ),
        data_dir=folder,
    )


if __name__ == "__main__":
    main()
