"""What Potluck costs one machine: `potluck train` against a hand-written loop, on the same model, data and threads.

    python -m benchmarks.plain_loop --json

Both train in one process and take turns step by step, so that whatever else the machine does weighs on both alike: when
Potluck has committed a step, the plain loop does one. Potluck's time includes its events and the plain display. The
plain loop gathers whole batches from memory, the quickest that a script can do.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import default_collate

from potluck.cli.display import TrainingDisplay
from potluck.cli.terminal import Console
from potluck.core.run_options import TrainOptions
from potluck.core.settings import make_settings
from potluck.events.state import RunState
from potluck.events.types import Record, StepCommitted
from potluck.workloads.datasets import DataOptions, load_dataset
from potluck.workloads.models import build_model, find_model
from potluck.workloads.trainer import complete, train

WARM_UP_STEPS = 10
SEED = 0


def main() -> None:
    """Measure, print a table, and end with one JSON line if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="simple_cnn")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        settings = complete(
            make_settings(
                {
                    "model": options.model,
                    "num_samples": options.batch * options.steps,
                    "global_batch": options.batch,
                    "epochs": 1,
                    "device": "cpu",
                    "seed": SEED,
                    "experiment_name": "run",
                }
            ),
            data_dir=Path(folder),
        )
        turns = Turns(train_plainly(settings))
        train(settings, runs_dir=Path(folder), watch=turns)
    pairs = list(zip(turns.potluck_s, turns.plain_s, strict=False))[WARM_UP_STEPS:]
    potluck, plain = (statistics.median(each) for each in zip(*pairs, strict=True))
    by_pair = statistics.quantiles((mine / theirs for mine, theirs in pairs), n=4)
    print(f"{options.model}, batch {options.batch}, {options.threads} threads, {len(pairs)} steps each, in turns")
    print(f"  plain loop     median step {plain * 1e3:7.2f} ms")
    print(f"  potluck train  median step {potluck * 1e3:7.2f} ms")
    print(f"  ratio of medians {potluck / plain:.4f}")
    print(f"  pair by pair     {by_pair[1]:.4f} (half of the pairs between {by_pair[0]:.3f} and {by_pair[2]:.3f})")
    if options.json:
        print(
            json.dumps(
                {
                    "plain_step_s": plain,
                    "potluck_step_s": potluck,
                    "step_ratio": potluck / plain,
                    "pair_ratio": by_pair[1],
                }
            )
        )


class Turns:
    """Watches Potluck's steps; after each, lets the plain loop make one, and times both."""

    def __init__(self, plain: Iterator[None]) -> None:
        self.potluck_s: list[float] = []
        self.plain_s: list[float] = []
        self._plain = plain
        self._display = TrainingDisplay(Console(quiet=True, force_terminal=False))
        self._since = time.monotonic()

    def __call__(self, record: Record, state: RunState) -> None:
        self._display(record, state)
        if not isinstance(record.event, StepCommitted):
            return
        committed = time.monotonic()
        self.potluck_s.append(committed - self._since)
        next(self._plain, None)
        self._since = time.monotonic()
        self.plain_s.append(self._since - committed)


def train_plainly(settings: TrainOptions) -> Iterator[None]:
    """What somebody writes without Potluck, a step at a time."""
    assert settings.dataset is not None
    assert settings.data_dir is not None
    assert settings.global_batch is not None
    spec = find_model(settings.model)
    options = DataOptions(data_dir=settings.data_dir, num_samples=settings.num_samples, seed=SEED)
    splits = load_dataset(settings.dataset, options)
    model = build_model(settings.model, settings.model_size, splits)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    dataset = spec.task.view(splits.train)
    order = torch.randperm(len(dataset))  # type: ignore[arg-type]
    for start in range(0, len(order), settings.global_batch):
        chosen = order[start : start + settings.global_batch]
        batch = (
            dataset.potluck_batch(chosen)
            if hasattr(dataset, "potluck_batch")
            else default_collate([dataset[int(index)] for index in chosen])
        )
        loss, _ = spec.task.loss(model, *batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        yield


if __name__ == "__main__":
    main()
