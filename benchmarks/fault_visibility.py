"""How soon a fault shows in a view of the run, in the lab: three laptops, one slowed, another killed and brought back.

    python -m benchmarks.fault_visibility --into /tmp/seen

The view is refreshed every second, as the dashboard does it. With --into the run's folder stays there as `run`, with
all workers' event files, as the host of a run would hold it; the dashboard can be open on it meanwhile.
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.support.crew import LabCrew, gather
from lab import Lab
from potluck.core.environment import read_environment
from potluck.core.run_folder import RunFolder
from potluck.core.run_options import TrainOptions
from potluck.report.pace import parts, recent_parts
from potluck.report.view import RunView
from potluck.workloads.trainer import complete, train

SLOWED, KILLED, STAYS = "rosa", "lily", "fern"
REFRESH_S = 1.0


def main() -> None:
    """Train with faults, or be one of the workers; prints seconds from each fault to the view that has it, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, help="a new folder that keeps the run")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--epochs", type=int, default=8, help="of 42 steps each")
    parser.add_argument("--slow-at", type=int, default=90, help="the step after which a machine is slowed")
    parser.add_argument("--kill-at", type=int, default=160, help="the step after which another is killed")
    parser.add_argument("--away", type=float, default=6.0, help="seconds until the killed machine is started again")
    options = parser.parse_args()
    if options.worker is not None:
        work(options.worker, options.epochs)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.into or Path(scratch, "into")
        folder.mkdir(parents=True)
        print(json.dumps({"benchmark": "fault_visibility", **conduct(folder, options)}))


def work(result: Path, epochs: int) -> None:
    """What `potluck train` does, without a display."""
    torch.set_num_threads(1)
    environment = read_environment()
    asked = TrainOptions(
        model="simple_cnn",
        num_samples=4000,
        global_batch=96,
        epochs=epochs,
        device="cpu",
        keep=(SLOWED, KILLED, STAYS),  # a benched machine would neither be missed nor tell of the others
        experiment_name="run",
    )
    train(
        complete(asked, data_dir=environment.data_dir),
        runs_dir=environment.runs_dir,
        watch=lambda _, state: print(f"step {state.step}", flush=True),
    )
    result.touch()


def conduct(folder: Path, options: argparse.Namespace) -> dict[str, float | None]:
    """Start the machines, and do to them what is to be seen; seconds until each fault was."""
    happened: dict[str, float] = {}
    with Lab("laptops") as lab:
        arguments = ["--epochs", options.epochs]
        crew = LabCrew(lab, folder, arguments, expected=3, module="benchmarks.fault_visibility")
        home = str(folder / "home")
        for name in crew.machines.names:
            crew.start(name, POTLUCK_HOME=home)
        watcher = crew.workers[STAYS]
        watcher.expect("step 2", 120)
        gather(crew, folder / "run")
        crew.machines.settle()
        follower = Follower(folder / "run")
        watcher.expect(f"step {options.slow_at}", 120)
        happened["slowed"] = time.time()
        lab[SLOWED].slow(0.25)
        watcher.expect(f"step {options.kill_at}", 120)
        happened["killed"] = time.time()
        lab[KILLED].kill()
        time.sleep(options.away)
        crew.start(KILLED, POTLUCK_HOME=home).expect("step ", 120)
        happened["returned"] = time.time()
        crew.machines.settle(KILLED)
        for worker in crew.workers.values():
            worker.wait(300)
        follower.stop()
        crew.stop_lighthouse()
    return {f"{name}_s": _seconds(when, follower.seen.get(name)) for name, when in happened.items()}


def _seconds(began: float, seen: float | None) -> float | None:
    return None if seen is None else round(seen - began, 2)


class Follower:
    """Refreshes a view of the run as the dashboard does, and notes when each fault is in it."""

    def __init__(self, folder: Path) -> None:
        self.seen: dict[str, float] = {}
        self._folder = folder
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def stop(self) -> None:
        """End after the refresh under way."""
        self._is_over.set()
        self._thread.join()

    def _follow(self) -> None:
        view = RunView(RunFolder(self._folder))
        signs: dict[str, Callable[[], bool]] = {
            "slowed": lambda: (
                recent_parts(view, 3.0).get(SLOWED, {}).get("compute", 0.0)
                > 1.5 * parts(view).get(SLOWED, {}).get("compute", 1e9)
            ),
            "killed": lambda: KILLED in view.away(),
            "returned": lambda: "killed" in self.seen and KILLED not in view.away(),
        }
        while not self._is_over.wait(REFRESH_S):
            view.refresh()
            for name, is_shown in signs.items():
                if name not in self.seen and is_shown():
                    self.seen[name] = time.time()


if __name__ == "__main__":
    main()
