"""What must hold of a run whatever its machines met: each step once, the same losses, and one process's parameters."""

import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass

import torch

from benchmarks.support.committed import committed, committed_by, num_whole, run_files
from benchmarks.support.crew import largest_difference, read_parameters
from benchmarks.support.household import NAMES, RUN, SCRIPT, Household, say

TOLERANCE = 1e-8


@dataclass(kw_only=True)
class LawFigures:
    """A run's files, held against one undisturbed process."""

    steps: int = 0
    steps_lost: int = 0
    steps_twice: int = 0
    steps_unwritten: int = 0
    """Steps that a machine had a part in, and was lost before it wrote that down; their losses show the part."""
    steps_disagreed: int = 0
    """Steps whose loss is not the same on all machines that committed it."""
    loss_difference: float = 0.0
    parameter_difference: float = 0.0
    event_bytes_a_step: float = 0.0
    """Of one worker's events, at the end."""

    def broken(self) -> list[str]:
        """What must not have happened, if it has."""
        laws = {
            "there are no steps": self.steps > 0,
            "steps are missing": self.steps_lost == 0,
            "steps were committed twice": self.steps_twice == 0,
            "machines disagree about losses": self.steps_disagreed == 0,
            "losses differ from one process": self.loss_difference <= TOLERANCE,
            "parameters differ from one process": self.parameter_difference <= TOLERANCE,
        }
        return [what for what, holds in laws.items() if not holds]


def check_laws(household: Household, figures: LawFigures) -> None:
    """The laws, from the files of all machines, against one process."""
    gathering = household.gathering
    steps = [one.step for name in NAMES for one in committed_by(gathering, name, RUN)]
    losses: dict[int, set[float]] = defaultdict(set)
    for one in steps:
        if one.loss is not None:
            losses[one.step].add(one.loss)
    whole = num_whole(steps)
    figures.steps = max(whole)
    figures.steps_lost = len(set(range(1, figures.steps + 1)) - set(whole))
    figures.steps_twice = sum(number > 1 for number in whole.values())
    figures.steps_unwritten = sum(number == 0 for number in whole.values())
    figures.steps_disagreed = sum(max(each) - min(each) > TOLERANCE for each in losses.values())
    if twice := sorted(step for step, number in whole.items() if number > 1):
        say(f"committed twice: {twice[:20]}")
    alone = gathering.folder / "alone"
    command = [sys.executable, str(SCRIPT), "--steps", str(figures.steps), "--result", str(alone.with_suffix(".pt"))]
    subprocess.run(
        command,
        check=True,
        cwd=gathering.folder,
        env={**gathering.variables("rosa"), "POTLUCK_HOME": str(alone / "home"), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.DEVNULL,
    )
    expected = {
        one.step.step: one.step.loss
        for file in gathering.folder.glob("experiments/soak*/events/*.jsonl")
        for one in committed(file)
    }
    assert len(expected) >= figures.steps, "one process alone has not made all steps"
    figures.loss_difference = max(abs(loss - (expected[s] or 0)) for s, each in losses.items() for loss in each)
    newest = max(
        (file for name in NAMES for file in run_files(gathering, name, RUN, "checkpoints/*.pth")),
        key=lambda file: torch.load(file, weights_only=True)["step"],
    )
    last = torch.load(newest, weights_only=True)
    assert last["step"] == figures.steps, f"the newest checkpoint is of step {last['step']}, not {figures.steps}"
    parameters = read_parameters(alone.with_suffix(".pt"))
    figures.parameter_difference = largest_difference(last["model"].values(), parameters)
    files = [file for name in NAMES for file in run_files(gathering, name, RUN, f"events/{name}-*.jsonl")]
    figures.event_bytes_a_step = round(sum({f.name: f.stat().st_size for f in files}.values()) / len(steps), 1)
