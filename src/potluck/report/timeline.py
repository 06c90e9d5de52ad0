"""Each worker's steps over time, summed in bins that get wider as a run gets longer, so that memory stays bounded."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from potluck.report.ledger import PARTS, Floats

FIRST_WIDTH_S: Final = 0.5
MOST_BINS: Final = 480
COLUMNS: Final = ("steps", "samples", "own_samples", "seconds", *PARTS, "loss", "num_losses")
MOST_MARKS: Final = 256


class Bins:
    """Sums of one worker's steps, by time on its own clock."""

    def __init__(self) -> None:
        self.first = 0
        """The number of the first bin, counted from 1970."""
        self.sums: Floats = np.zeros((0, len(COLUMNS)))

    def length_with(self, lowest: float, highest: float) -> int:
        """How many bins there would be with the bin numbers `lowest` to `highest` added."""
        if not len(self.sums):
            return int(highest - lowest) + 1
        return int(max(highest + 1, self.first + len(self.sums)) - min(lowest, self.first))

    def add(self, numbers: npt.NDArray[np.int64], values: Floats) -> None:
        """Add the values of steps, a row each, to the bins with these numbers."""
        begin = int(numbers.min()) if not len(self.sums) else min(self.first, int(numbers.min()))
        end = max(self.first + len(self.sums), int(numbers.max()) + 1)
        if begin < self.first or end > self.first + len(self.sums):
            wider = np.zeros((end - begin, len(COLUMNS)))
            if len(self.sums):
                wider[self.first - begin : self.first - begin + len(self.sums)] = self.sums
            self.first, self.sums = begin, wider
        np.add.at(self.sums, numbers - self.first, values)

    def halve(self) -> None:
        """Make every bin twice as wide."""
        begin, end = self.first // 2, -(-(self.first + len(self.sums)) // 2)
        padded = np.zeros((2 * (end - begin), len(COLUMNS)))
        padded[self.first - 2 * begin :][: len(self.sums)] = self.sums
        self.first, self.sums = begin, padded[::2] + padded[1::2]


class Marks:
    """The commit times of some steps of a worker. All workers keep the same steps, so their clocks can be compared."""

    def __init__(self) -> None:
        self._every = 1
        self._times: dict[int, float] = {}

    def add(self, steps: npt.NDArray[np.int64], times: Floats) -> None:
        """Keep the times of steps that are multiples of a power of two, which grows so that MOST_MARKS are enough."""
        chosen = steps % self._every == 0
        self._times.update(zip(steps[chosen].tolist(), times[chosen].tolist(), strict=True))
        while len(self._times) > MOST_MARKS:
            self._every *= 2
            self._times = {step: time for step, time in self._times.items() if step % self._every == 0}

    def ahead_of(self, other: "Marks") -> float:
        """Seconds by which this clock is ahead of the other: both workers commit a step at nearly the same moment."""
        differences = [time - other._times[step] for step, time in self._times.items() if step in other._times]
        return float(np.median(differences)) if differences else 0.0


class Timeline:
    """The bins of all workers, which have one width."""

    def __init__(self) -> None:
        self.width_s = FIRST_WIDTH_S
        self.bins: dict[str, Bins] = {}

    def add(self, worker: str, times: Floats, values: Floats) -> None:
        """Add steps of one worker: times on the worker's clock, and a row of COLUMNS for each step."""
        mine = self.bins.setdefault(worker, Bins())
        while mine.length_with(times.min() // self.width_s, times.max() // self.width_s) > MOST_BINS:
            self._halve()
        mine.add((times // self.width_s).astype(np.int64), values)

    def together(self, ahead_s: Mapping[str, float], least_width_s: float = 0.0) -> tuple[Floats, float, Floats]:
        """Starts of bins on the run's clock, their width, and workers x bins x COLUMNS, in the order of `bins`.

        Bins are joined until each is at least `least_width_s` wide.
        """
        if not self.bins:
            return np.zeros(0), self.width_s, np.zeros((0, 0, len(COLUMNS)))
        shifts = {name: round(ahead_s.get(name, 0.0) / self.width_s) for name in self.bins}
        begin = min(bins.first - shifts[name] for name, bins in self.bins.items())
        end = max(bins.first - shifts[name] + len(bins.sums) for name, bins in self.bins.items())
        joined = max(1, int(np.ceil(least_width_s / self.width_s)))
        count = -(-(end - begin) // joined) * joined
        everyone = np.zeros((len(self.bins), count, len(COLUMNS)))
        for index, (name, bins) in enumerate(self.bins.items()):
            everyone[index, bins.first - shifts[name] - begin :][: len(bins.sums)] = bins.sums
        wide = everyone.reshape(len(self.bins), count // joined, joined, len(COLUMNS)).sum(axis=2)
        starts = np.arange(begin, begin + count, joined, dtype=np.float64) * self.width_s
        return starts, joined * self.width_s, wide

    def _halve(self) -> None:
        self.width_s *= 2
        for bins in self.bins.values():
            bins.halve()
