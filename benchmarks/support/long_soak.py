"""Hours of bad luck: five machines with a host train one run while all that can go wrong does; then laws are checked.

The first and the last tenth are calm, so that their speeds can be compared. In between something breaks every few
seconds, on any machine, the host as well.
"""

import random
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.support.household import NAMES, Household, begin_training, end_training, in_household, say
from benchmarks.support.laws import LawFigures, check_laws
from benchmarks.support.mishaps import Mishaps

CALM_PART = 0.1
BETWEEN_S = (4.0, 16.0)
LONGEST_SILENCE_S = 45.0
SLOWEST_END = 0.98
MOST_GROWTH = 1.25
_WATCH_EVERY_S = 20.0
_MB = 1e6


@dataclass(kw_only=True)
class LongFigures(LawFigures):
    """What a long soak came to."""

    hours: float
    mishaps: dict[str, int] = field(default_factory=dict)
    longest_silence_s: float = 0.0
    slowest_return_s: float = 0.0
    steps_per_s: tuple[float, float] = (0.0, 0.0)
    """In the first and in the last tenth, which are calm."""
    memory_mb: tuple[float, float] = (0.0, 0.0)
    """The most that one process had, in the first and in the last tenth."""
    files: tuple[int, int] = (0, 0)
    """The most file descriptors that one process had open."""


def laws_broken(figures: LongFigures) -> list[str]:
    """What must not happen, if it has."""
    first, last = figures.steps_per_s
    laws = {
        f"no step for {figures.longest_silence_s:.0f} s": figures.longest_silence_s <= LONGEST_SILENCE_S,
        "the run has become slower": last >= SLOWEST_END * first,
        "processes have grown": figures.memory_mb[1] <= MOST_GROWTH * figures.memory_mb[0],
        "files stay open": figures.files[1] <= MOST_GROWTH * figures.files[0],
    }
    return [*figures.broken(), *(what for what, holds in laws.items() if not holds)]


def soak_long(hours: float, seed: int, keep: Path | None = None) -> LongFigures:
    """Train through mishaps for so long, then compare with one process that makes as many steps."""
    return in_household(lambda household: _soak(household, hours, random.Random(seed)), keep)


def _soak(household: Household, hours: float, chance: random.Random) -> LongFigures:
    figures = LongFigures(hours=hours)
    begin_training(household)
    watch = Watch(household)
    watch.start()
    mishaps = Mishaps(household, chance)
    seconds = hours * 3600
    watch.calm(seconds * CALM_PART)
    began, next_at = time.monotonic(), 0.0
    while time.monotonic() - began < seconds * (1 - 2 * CALM_PART):
        if time.monotonic() >= next_at:
            mishaps.strike()
            next_at = time.monotonic() + chance.uniform(*BETWEEN_S)
        mishaps.mend()
        watch.look()
        time.sleep(0.2)
    settle(mishaps, watch)
    watch.calm(seconds * CALM_PART)
    figures.mishaps, figures.slowest_return_s = dict(mishaps.count), round(mishaps.slowest_return_s, 1)
    watch.compare(figures)
    figures.longest_silence_s = watch.end()
    end_training(household)
    check_laws(household, figures)
    return figures


def settle(mishaps: Mishaps, watch: "Watch") -> None:
    """Mend everything, and wait until all machines train again."""
    mishaps.mend(all_of_them=True)
    while not mishaps.are_over():
        mishaps.mend()
        watch.look()
        time.sleep(0.2)


class Watch(threading.Thread):
    """How long nobody commits, how fast calm tenths are, and what processes take."""

    def __init__(self, household: Household) -> None:
        super().__init__(name="watch", daemon=True)
        self._household = household
        self._is_over = threading.Event()
        self._longest_s = self._waited_s = 0.0
        self._taken: list[tuple[float, int]] = []
        self._calm: list[tuple[float, float, int]] = []

    def run(self) -> None:
        """Look several times a second, also while a command of the soak takes its time."""
        newest, news_at, next_count = 0, time.monotonic(), 0.0
        while not self._is_over.wait(0.1):
            step, now = self._household.newest(), time.monotonic()
            self._waited_s = now - news_at
            self._longest_s = max(self._longest_s, self._waited_s)
            if step > newest:
                if self._waited_s > LONGEST_SILENCE_S / 6:
                    say(f"step {step} after {self._waited_s:.0f} s")
                newest, news_at = step, now
            if now >= next_count:
                self._taken.extend(taken(self._household))
                next_count = now + _WATCH_EVERY_S

    def look(self) -> None:
        """Give up on a run that has stopped."""
        assert self._waited_s < 4 * LONGEST_SILENCE_S, f"no step for {self._waited_s:.0f} s"

    def end(self) -> float:
        """Look no more; the longest time in seconds that nobody committed a step."""
        self._is_over.set()
        return round(self._longest_s, 1)

    def calm(self, seconds: float) -> None:
        """A calm tenth: the median speed of its parts."""
        self._taken = []
        until, speeds = time.monotonic() + seconds, []
        while time.monotonic() < until:
            since, before = time.monotonic(), self._household.newest()
            time.sleep(min(seconds / 6, 20.0))
            self.look()
            speeds.append((self._household.newest() - before) / (time.monotonic() - since))
        seen = self._taken
        self._calm.append((statistics.median(speeds), max(mb for mb, _ in seen), max(files for _, files in seen)))
        say("calm: {:.2f} steps/s; the largest process has {:.0f} MB and {} files".format(*self._calm[-1]))

    def compare(self, figures: LongFigures) -> None:
        """Write down what the two calm tenths were."""
        (first_speed, first_mb, first_files), (last_speed, last_mb, last_files) = self._calm
        figures.steps_per_s = (round(first_speed, 3), round(last_speed, 3))
        figures.memory_mb = (round(first_mb), round(last_mb))
        figures.files = (first_files, last_files)


def taken(household: Household) -> Iterator[tuple[float, int]]:
    """Megabytes and open files of every process on every machine."""
    for name in NAMES:
        for pid in household.gathering.lab[name].pids():
            place = Path(f"/proc/{pid}")
            try:
                resident = next(
                    int(line.split()[1]) for line in (place / "status").read_text().splitlines() if "VmRSS" in line
                )
                yield resident * 1024 / _MB, len(list((place / "fd").iterdir()))
            except (OSError, StopIteration):  # it has just ended
                continue
