"""What a worker of any program leaves behind: its samples by time, and now and then the model, judged after the run."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.support import byte_model

SNAPSHOT_EVERY_S = 8.0
BATCH = 128
"""Samples of a step, or of all machines' local steps together."""
RISE_SAMPLES = 2560
"""The learning rate rises over so many samples of all machines, and stays."""


class Recording:
    """One worker's record from the moment when all workers begin."""

    def __init__(self, folder: Path, machine: str, *, saves: bool) -> None:
        self._folder, self._saves = folder, saves
        self._lines = (folder / f"{machine}.jsonl").open("a", buffering=1)  # a machine that is killed leaves its lines
        self._total = 0
        self._saved_at = 0.0
        self.began = time.time()
        self._write(began=self.began)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.time() - self.began

    def trained(self, samples: int) -> None:
        """This worker has trained so many more samples."""
        self._total += samples
        self._write(samples=(time.time(), self._total))

    def updated(self) -> None:
        """This worker's parameters have changed by what all machines have trained."""
        self._write(updated=time.time())

    def look_at(self, model: nn.Module) -> None:
        """Keep the model, if one machine does that and the last time is some seconds ago."""
        if self._saves and self.seconds - self._saved_at >= SNAPSHOT_EVERY_S:
            self._saved_at = self.seconds
            torch.save(model.state_dict(), self._folder / f"{time.time():.3f}.pt")

    def _write(self, **line: object) -> None:
        print(json.dumps(line), file=self._lines)

    def close(self) -> None:
        self._lines.close()


def read_records(folder: Path) -> dict[str, dict[str, list[Any]]]:
    """By machine what its lines say: began, samples, updated."""
    records: dict[str, dict[str, list[Any]]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        record = records.setdefault(file.stem, {"began": [], "samples": [], "updated": []})
        for line in file.read_text().splitlines():
            with suppress(json.JSONDecodeError):  # the last line of a machine that was killed
                for key, value in json.loads(line).items():
                    record[key].append(value)
    return {name: record for name, record in records.items() if record["samples"]}


def seconds_without(folder: Path, machine: str, killed_at: float) -> tuple[float, float]:
    """The longest time between two updates of the machine that began after the kill or spans it, and the usual one."""
    gaps = list(pairwise(read_records(folder)[machine]["updated"]))
    before = [later - at for at, later in gaps if later <= killed_at]
    after = [later - at for at, later in gaps if later > killed_at]
    return max(after, default=float("inf")), median(before[len(before) // 4 :] or [float("nan")])


@dataclass(frozen=True)
class Judged:
    """A run: seconds, samples of all machines and held-out loss of each model that was kept."""

    points: list[tuple[float, int, float]]
    samples_per_s: float
    samples: dict[str, int]

    def reached(self, loss: float) -> tuple[float, int] | None:
        """Seconds and samples until the loss was this low, between two looks by a straight line; None if never."""
        if self.points and self.points[0][2] <= loss:
            return self.points[0][:2]
        for (at, had, above), (later, have, below) in pairwise(self.points):
            if below <= loss < above:
                part = (above - loss) / (above - below)
                return at + part * (later - at), round(had + part * (have - had))
        return None


def judge(folder: Path, rows: int, warm_s: float = 20.0, until: float = float("inf")) -> Judged:
    """Read what all workers have left, and measure the kept models. `until`: the speed is that before this moment."""
    records = read_records(folder)
    began = min(record["began"][0] for record in records.values())

    def trained_until(when: float) -> int:
        return sum(max((n for at, n in one["samples"] if at <= when), default=0) for one in records.values())

    end = min(until, *(one["samples"][-1][0] for one in records.values()))
    all_train = max(one["samples"][0][0] for one in records.values())  # a slow machine starts half a minute later
    warm = min(all_train + warm_s, all_train + (end - all_train) / 2)
    points = []
    for file in sorted(folder.glob("*.pt")):
        when = float(file.stem)
        points.append((round(when - began, 2), trained_until(when), held_out_loss(file, rows)))
    return Judged(
        points,
        samples_per_s=(trained_until(end) - trained_until(warm)) / (end - warm),
        samples={name: one["samples"][-1][1] for name, one in records.items()},
    )


def held_out_loss(file: Path, rows: int) -> float:
    """Of a kept model."""
    model = byte_model.ByteModel(rows)
    model.load_state_dict(torch.load(file, weights_only=True))
    return byte_model.held_out_loss(model)


def rate_after(samples: float) -> float:
    """The learning rate against its largest after so many samples of all machines."""
    return min(1.0, (samples + BATCH) / RISE_SAMPLES)
