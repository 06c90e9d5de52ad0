"""Ten minutes of bad luck: machines are killed, frozen, cut off and started again at random while they train.

    python -m benchmarks.soak --minutes 10 --seed 3
    python -m benchmarks.soak --minutes 10 --cluster crawl --exchange int4 --keep-lighthouse
    python -m benchmarks.soak --hours 2 --json

Fails if no step commits for 30 s, if a step is missing, if a machine that nobody touched is taken for lost, or, without
a code, if the losses or the parameters at the end differ from one undisturbed process. The first machine of the lab
cluster holds the lighthouse, which is restarted as well; for some seconds after that, any machine may be lost. With
--keep-lighthouse every loss of a machine must come from a fault of its own.

With --hours five machines have joined a host, and more goes wrong: benchmarks.support.long_soak.
"""

import argparse
import json
import math
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

from benchmarks.support import long_soak
from benchmarks.support.crew import LabCrew, largest_difference, read_parameters, start_alone
from lab import Lab
from potluck.events.log import read_records
from potluck.events.types import GroupChanged

LONGEST_SILENCE_S = 30.0
TOLERANCE = 1e-8
BACK_WITHIN_S = (2.0, 12.0)
BETWEEN_FAULTS_S = (2.0, 8.0)
EXCUSED_S = 20.0  # a fault may show so much later, in the next group of machines that come back
LIGHTHOUSE_REST_S = 30.0  # a membership service that dies more often is a fault of another kind
ENDLESS = 1_000_000


@dataclass(frozen=True)
class Figures:
    """What a soak came to."""

    steps: int
    steps_lost: int
    longest_silence_s: float
    faults: dict[str, int]
    false_losses: int
    """Machines that the others went on without, though nothing had happened to them."""
    loss_difference: float
    difference: float
    steps_done_otherwise: int = 0
    """With a code: steps that machines remember with different losses, as one group did them again without the other.
    How gradients are rounded depends on the split, so that a step done again has another result."""


class Misfortune:
    """What is broken at the moment, and how each machine is brought back."""

    def __init__(self, crew: LabCrew, chance: random.Random, *, keeps_lighthouse: bool) -> None:
        self.count: Counter[str] = Counter()
        self._crew = crew
        self._chance = chance
        self._host = crew.lab.machines[0].name
        self._lighthouse_until = math.inf if keeps_lighthouse else 0.0
        self._leaving: set[str] = set()
        self._down: dict[str, tuple[float, Callable[[], object]]] = {}
        self._struck: list[tuple[str, float]] = []

    def strike(self) -> None:
        """Break something that works, but leave one machine that trains to go on."""
        training = [name for name in self._crew.workers if name not in self._down and newest_step(self._crew, name)]
        candidates = training if len(training) > 1 else []
        if "lighthouse" not in self._down and time.monotonic() > self._lighthouse_until:
            candidates = [*candidates, "lighthouse"]
        if not candidates:
            return
        name = self._chance.choice(candidates)
        self._struck.append((name, time.time()))
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
                self._struck.append((name, time.time()))
                print(f"{time.strftime('%H:%M:%S')} {name}: back", flush=True)

    def check_the_living(self) -> None:
        """A worker that nobody touched must not have ended."""
        for name, worker in self._crew.workers.items():
            if name not in self._down and worker.returncode is not None:
                sys.exit(f"the worker on {name} ended by itself ({worker.returncode}):\n{worker.output[-3000:]}")

    def is_excused(self, machine: str, when: float) -> bool:
        """Whether the others may have lost the machine at that time: it, or the lighthouse, was just broken or mended.

        A fault lasts at most as long as BACK_WITHIN_S says, so that all of it is near its beginning or its end.
        """
        return any(name in (machine, "lighthouse") and 0 <= when - at <= EXCUSED_S for name, at in self._struck)

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
    parser.add_argument("--hours", type=float, help="five machines and a host, with everything that can go wrong")
    parser.add_argument("--keep", type=Path, help="with --hours: a new folder that gets what the machines left")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cluster", default="laptops", help="a lab cluster of rosa, lily and fern")
    parser.add_argument("--exchange", default="exact", choices=["exact", "fp16", "int8", "int4"])
    parser.add_argument("--keep-lighthouse", action="store_true", help="never kill the lighthouse")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.hours:
        long = long_soak.soak_long(options.hours, options.seed, options.keep)
        print(json.dumps(asdict(long), indent=None if options.json else 2))
        sys.exit("; ".join(long_soak.laws_broken(long)) or 0)
    figures = soak(
        options.minutes,
        options.seed,
        options.cluster,
        options.exchange,
        keeps_lighthouse=options.keep_lighthouse,
    )
    print(
        f"{figures.steps} steps in {options.minutes:g} minutes, silent {figures.longest_silence_s:.1f} s, "
        f"faults: {figures.faults}, machines lost by mistake: {figures.false_losses}, "
        f"losses off by {figures.loss_difference:.1e}, parameters by {figures.difference:.1e}"
    )
    if options.json:
        print(json.dumps(asdict(figures)))
    problems = laws_broken(figures, is_exact=options.exchange == "exact")
    sys.exit("; ".join(problems) if problems else 0)


def laws_broken(figures: Figures, *, is_exact: bool = True) -> list[str]:
    """What must not happen, if it has."""
    laws = {
        "no step for half a minute": figures.longest_silence_s <= LONGEST_SILENCE_S,
        "steps are missing": figures.steps_lost == 0,
        "machines that lived were taken for lost": figures.false_losses == 0,
        "losses differ from one process": not is_exact or figures.loss_difference <= TOLERANCE,
        "parameters differ from one process": not is_exact or figures.difference <= TOLERANCE,
    }
    return [what for what, holds in laws.items() if not holds]


def soak(
    minutes: float, seed: int, cluster: str = "laptops", exchange: str = "exact", *, keeps_lighthouse: bool = False
) -> Figures:
    """Train through random faults, then compare with one process that makes as many steps."""
    with tempfile.TemporaryDirectory() as scratch, Lab(cluster) as lab:
        folder = Path(scratch)
        crew = LabCrew(lab, folder, ["--steps", ENDLESS, "--exchange", exchange], expected=len(lab.machines))
        for name in crew.machines.names:
            crew.start(name)
        crew.workers[lab.machines[0].name].expect("step 5", 60)
        crew.machines.settle()
        chance = random.Random(seed)
        misfortune = Misfortune(crew, chance, keeps_lighthouse=keeps_lighthouse)
        longest_silence_s = suffer(crew, misfortune, chance, minutes * 60)
        last = torch.load(end(crew), weights_only=True)
        losses: dict[int, float] = {}
        done_otherwise: set[int] = set()
        for name in crew.machines.names:
            done_otherwise |= add_losses(losses, crew, name)
        if done_otherwise and exchange == "exact":
            sys.exit(f"machines disagree about steps {sorted(done_otherwise)}")
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
            false_losses=num_false_losses(crew, misfortune),
            loss_difference=max(abs(loss - expected[step]) for step, loss in losses.items()),
            steps_done_otherwise=len(done_otherwise),
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
            if time.monotonic() - last_news > LONGEST_SILENCE_S / 3:
                print(f"{time.strftime('%H:%M:%S')} step {step} after {time.monotonic() - last_news:.0f} s", flush=True)
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


def num_false_losses(crew: LabCrew, misfortune: Misfortune) -> int:
    """Losses of machines that nobody had touched, as the events of other such machines tell them."""
    false = {
        (machine, record.event.step)
        for name in crew.machines.names
        for file in crew.event_files(name)
        for record in read_records(file)
        if isinstance(record.event, GroupChanged) and not misfortune.is_excused(name, record.time)
        for machine in record.event.left
        if not misfortune.is_excused(machine, record.time)
    }
    for machine, step in sorted(false):
        print(f"{machine} was lost at step {step}, and nothing had happened to it", flush=True)
    return len(false)


def add_losses(losses: dict[int, float], crew: LabCrew, name: str) -> set[int]:
    """Add the loss of each step of that worker; the steps whose loss is another one already."""
    unlike = set()
    for event in crew.steps(name):
        assert event.loss is not None
        if abs(losses.setdefault(event.step, event.loss) - event.loss) > TOLERANCE:
            unlike.add(event.step)
            print(f"step {event.step} on {name}: loss {event.loss}, elsewhere {losses[event.step]}", flush=True)
    return unlike


def train_alone(runs_dir: Path, result: Path, steps: int) -> None:
    """One process, the same steps, nothing goes wrong."""
    if start_alone(runs_dir, result, steps).wait():
        sys.exit(f"one process that makes {steps} steps alone has failed")


if __name__ == "__main__":
    main()
