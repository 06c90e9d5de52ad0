"""A run with things to see, in the lab: three laptops, one slowed, another killed and brought back.

    python -m benchmarks.eventful --into /tmp/eventful

The run folder `eventful` has all workers' event files, as the host of a run would hold it. Times of the faults go to
faults.json beside it. With --follow it also measures how soon a view that is refreshed every second shows each fault.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.crew import LabCrew, gather
from lab import Lab

RUN = "eventful"
SLOWED, KILLED, STAYS = "rosa", "lily", "fern"
REFRESH_S = 1.0


def main() -> None:
    """Train with faults, or be one of the workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, help="the folder that gets the run")
    parser.add_argument("--worker", type=Path, help="be a worker, and leave this file at the end")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--follow", action="store_true", help="measure how soon the faults show")
    options = parser.parse_args()
    if options.worker is not None:
        work(options.worker, options.epochs)
    else:
        conduct(options.into, options.epochs, is_followed=options.follow)


def work(result: Path, epochs: int) -> None:
    """What `potluck train` does, without a display."""
    import torch  # noqa: PLC0415

    from potluck.core.environment import read_environment  # noqa: PLC0415
    from potluck.core.settings import TrainSettings  # noqa: PLC0415
    from potluck.workloads.trainer import complete, train  # noqa: PLC0415

    torch.set_num_threads(1)
    environment = read_environment()
    asked = TrainSettings(
        model="simple_cnn", num_samples=4000, global_batch=96, epochs=epochs, device="cpu", experiment_name=RUN
    )
    train(
        complete(asked, data_dir=environment.data_dir),
        runs_dir=environment.runs_dir,
        watch=lambda _, state: print(f"step {state.step}", flush=True),
    )
    result.touch()


def conduct(folder: Path, epochs: int, *, is_followed: bool) -> None:
    """Start the machines, and do to them what is to be seen."""
    folder.mkdir(parents=True)
    told: dict[str, float] = {}
    seen: dict[str, float] = {}
    with Lab("laptops") as lab:
        crew = LabCrew(lab, folder, ["--epochs", str(epochs)], expected=3, module="benchmarks.eventful")
        home = str(folder / "home")
        for machine in lab.machines:
            crew.start(machine.name, POTLUCK_HOME=home)
        crew.workers[STAYS].expect("step 2", 120)
        gather(crew, RUN, folder / RUN)
        for machine in lab.machines:
            crew.settle(machine.name)
        follower = Follower(folder, seen) if is_followed else None
        watcher = crew.workers[STAYS]
        watcher.expect("step 90", 120)
        told["slowed"] = time.time()
        lab[SLOWED].slow(0.25)
        watcher.expect("step 160", 120)
        told["killed"] = time.time()
        lab[KILLED].kill()
        time.sleep(6)
        told["returned"] = time.time()
        crew.start(KILLED, POTLUCK_HOME=home)
        crew.workers[KILLED].expect("step 2", 120)
        crew.settle(KILLED)
        for name in (STAYS, SLOWED, KILLED):
            crew.workers[name].wait(300)
        if follower is not None:
            follower.stop()
        crew.lighthouse.kill()
        crew.lighthouse.wait(10)
    (folder / "faults.json").write_text(json.dumps({"told": told, "seen": seen}))
    print(json.dumps({"told": told, "seen": seen}))


class Follower:
    """Refreshes a view of the run as the dashboard does, and notes when each fault is in it."""

    def __init__(self, folder: Path, seen: dict[str, float]) -> None:
        self._folder = folder
        self._seen = seen
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def stop(self) -> None:
        """End after the refresh under way."""
        self._is_over.set()
        self._thread.join()

    def _follow(self) -> None:
        from potluck.core.run_folder import RunFolder  # noqa: PLC0415
        from potluck.report.pace import parts, recent_parts  # noqa: PLC0415
        from potluck.report.view import RunView  # noqa: PLC0415

        view = RunView(RunFolder(self._folder / RUN))
        signs: dict[str, Callable[[], bool]] = {
            "slowed": lambda: (
                recent_parts(view, 3.0).get(SLOWED, {}).get("compute", 0.0)
                > 1.5 * parts(view).get(SLOWED, {}).get("compute", 1e9)
            ),
            "killed": lambda: KILLED in view.away(),
            "returned": lambda: "killed" in self._seen and KILLED not in view.away(),
        }
        while not self._is_over.wait(REFRESH_S):
            view.refresh()
            for name, is_shown in signs.items():
                if name not in self._seen and is_shown():
                    self._seen[name] = time.time()


if __name__ == "__main__":
    main()
