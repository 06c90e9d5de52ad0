"""Ten minutes of bad luck: machines are killed, frozen, cut off and started again at random while they train.

    python -m benchmarks.soak --minutes 10 --seed 3

Fails if no step commits for 30 s, if a step is missing, or if the losses or the parameters at the end differ from one
undisturbed process. Machines of the lab cluster `laptops`; the first holds the lighthouse, which is restarted as well.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.support.crew import LabCrew, largest_difference, read_parameters, start_alone
from lab import Lab

LONGEST_SILENCE_S = 30.0
TOLERANCE = 1e-8
BACK_WITHIN_S = (2.0, 12.0)
BETWEEN_FAULTS_S = (2.0, 8.0)
LIGHTHOUSE_REST_S = 30.0  # a membership service that dies more often is a fault of another kind
ENDLESS = 1_000_000


@dataclass(frozen=True)
class Figures:
    """What a soak came to."""

    steps: int
    steps_lost: int
    longest_silence_s: float
    faults: dict[str, int]
    loss_difference: float
    difference: float


class Misfortune:
    """What is broken at the moment, and how each machine is brought back."""

    def __init__(self, crew: LabCrew, chance: random.Random) -> None:
        self.count: Counter[str] = Counter()
        self._crew = crew
        self._chance = chance
        self._host = crew.lab.machines[0].name
        self._lighthouse_until = 0.0
        self._leaving: set[str] = set()
        self._down: dict[str, tuple[float, Callable[[], object]]] = {}

    def strike(self) -> None:
        """Break something that works, but leave one machine that trains to go on."""
        training = [name for name in self._crew.workers if name not in self._down and newest_step(self._crew, name)]
        candidates = training if len(training) > 1 else []
        if "lighthouse" not in self._down and time.monotonic() > self._lighthouse_until:
            candidates = [*candidates, "lighthouse"]
        if not candidates:
            return
        name = self._chance.choice(candidates)
        kind, back = self._break(name)
        self.count[kind] += 1
        self._down[name] = (time.monotonic() + self._chance.uniform(*BACK_WITHIN_S), back)
        print(f"{time.strftime('%H:%M:%S')} {name}: {kind}", flush=True)

    def bring_back(self, *, all_of_them: bool = False) -> None:
        """Those whose time has come."""
        for name, (when, back) in list(self._down.items()):
            is_leaving = name in self._leaving and self._crew.workers[name].returncode is None
            if (all_of_them or time.monotonic() >= when) and not is_leaving:
                self._leaving.discard(name)
                del self._down[name]
                back()
                print(f"{time.strftime('%H:%M:%S')} {name}: back", flush=True)

    def check_the_living(self) -> None:
        """A worker that nobody touched must not have ended."""
        for name, worker in self._crew.workers.items():
            if name not in self._down and worker.returncode is not None:
                sys.exit(f"the worker on {name} ended by itself ({worker.returncode}):\n{worker.output[-3000:]}")

    def _break(self, name: str) -> tuple[str, Callable[[], object]]:
        crew = self._crew
        if name == "lighthouse":
            self._lighthouse_until = time.monotonic() + LIGHTHOUSE_REST_S
            crew.lighthouse.kill()
            return "lighthouse killed", crew.start_lighthouse
        worker, machine = crew.workers[name], crew.lab[name]
        faults: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "killed": (worker.kill, lambda: crew.start(name)),
            "leaves by Ctrl-C": (lambda: worker.send_signal(signal.SIGINT), lambda: crew.start(name)),
        }
        if name != self._host:  # where the lighthouse runs, the rest would be a fault of everybody's
            faults |= {
                "frozen": (lambda: machine.freeze(kernel_answers=True), machine.thaw),
                "cut off": (machine.cut, machine.mend),
            }
        kind = self._chance.choice(list(faults))
        strike, back = faults[kind]
        strike()
        if kind == "leaves by Ctrl-C":  # after its step, for which it may need a lighthouse that is down just now
            self._leaving.add(name)
        return kind, back


def main() -> None:
    """Soak, check, print what happened, and end with one JSON line if asked; exit 1 if a law broke."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = soak(options.minutes, options.seed)
    print(
        f"{figures.steps} steps in {options.minutes:g} minutes, silent {figures.longest_silence_s:.1f} s, "
        f"faults: {figures.faults}, losses off by {figures.loss_difference:.1e}, parameters by {figures.difference:.1e}"
    )
    if options.json:
        print(json.dumps(asdict(figures)))
    problems = laws_broken(figures)
    sys.exit("; ".join(problems) if problems else 0)


def laws_broken(figures: Figures) -> list[str]:
    """What must not happen, if it has."""
    laws = {
        "no step for half a minute": figures.longest_silence_s <= LONGEST_SILENCE_S,
        "steps are missing": figures.steps_lost == 0,
        "losses differ from one process": figures.loss_difference <= TOLERANCE,
        "parameters differ from one process": figures.difference <= TOLERANCE,
    }
    return [what for what, holds in laws.items() if not holds]


def soak(minutes: float, seed: int) -> Figures:
    """Train through random faults, then compare with one process that makes as many steps."""
    with tempfile.TemporaryDirectory() as scratch, Lab("laptops") as lab:
        folder = Path(scratch)
        crew = LabCrew(lab, folder, ["--steps", ENDLESS], expected=len(lab.machines))
        for name in crew.machines.names:
            crew.start(name)
        crew.workers[lab.machines[0].name].expect("step 5", 60)
        crew.machines.settle()
        chance = random.Random(seed)
        misfortune = Misfortune(crew, chance)
        longest_silence_s = suffer(crew, misfortune, chance, minutes * 60)
        last = torch.load(end(crew), weights_only=True)
        losses: dict[int, float] = {}
        for name in crew.machines.names:
            add_losses(losses, crew, name)
        steps = max(losses)
        train_alone(folder / "alone", folder / "alone.pt", steps)
        train_alone(folder / "end", folder / "alone_at_the_end.pt", int(last["step"]))
        expected: dict[int, float] = {}
        add_losses(expected, crew, "alone")
        return Figures(
            steps=steps,
            steps_lost=steps - len(losses),
            longest_silence_s=round(longest_silence_s, 2),
            faults=dict(misfortune.count),
            loss_difference=max(abs(loss - expected[step]) for step, loss in losses.items()),
            difference=largest_difference(last["model"].values(), read_parameters(folder / "alone_at_the_end.pt")),
        )


def suffer(crew: LabCrew, misfortune: Misfortune, chance: random.Random, seconds: float) -> float:
    """Faults until the time is over, then everybody back; returns the longest time without a committed step."""
    began = last_news = time.monotonic()
    longest, newest, next_fault = 0.0, 0, began
    while time.monotonic() - began < seconds:
        if time.monotonic() >= next_fault:
            misfortune.strike()
            next_fault = time.monotonic() + chance.uniform(*BETWEEN_FAULTS_S)
        misfortune.check_the_living()
        misfortune.bring_back()
        step = max(newest_step(crew, machine.name) for machine in crew.lab.machines)
        longest = max(longest, time.monotonic() - last_news)
        if step > newest:
            newest, last_news = step, time.monotonic()
        if longest > 2 * LONGEST_SILENCE_S:
            break
        time.sleep(0.2)
    misfortune.bring_back(all_of_them=True)
    time.sleep(5)
    return longest


def newest_step(crew: LabCrew, name: str) -> int:
    """The last step that the machine's worker printed."""
    steps = [line for line in crew.workers[name].output.splitlines()[-5:] if line.startswith("step ")]
    return int(steps[-1].split()[1]) if steps else 0


def end(crew: LabCrew) -> Path:
    """Ctrl-C for one after the other; the last one's newest checkpoint."""
    workers = [worker for worker in crew.workers.values() if worker.returncode is None]
    for worker in workers:
        worker.send_signal(signal.SIGINT)
        worker.wait(60)
    folder = crew.folder / workers[-1].machine / "run" / "checkpoints"
    return max(folder.glob("*.pth"), key=lambda path: path.stat().st_mtime)


def add_losses(losses: dict[int, float], crew: LabCrew, name: str) -> None:
    """Add the loss of each step of that worker; what machines say of the same step must be the same."""
    for event in crew.steps(name):
        assert event.loss is not None
        if abs(losses.setdefault(event.step, event.loss) - event.loss) > TOLERANCE:
            sys.exit(f"machines disagree about step {event.step}: {losses[event.step]} and {event.loss}")


def train_alone(runs_dir: Path, result: Path, steps: int) -> None:
    """One process, the same steps, nothing goes wrong."""
    if start_alone(runs_dir, result, steps).wait():
        sys.exit(f"one process that makes {steps} steps alone has failed")


if __name__ == "__main__":
    main()
