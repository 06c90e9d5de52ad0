"""The stored profile that a run starts from, and what the run stores for the next one."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from potluck.core.errors import MeasureError
from potluck.engine.balance.profile_memory import LEAST_STEPS, ProfileMemory
from potluck.measuring.tuning import Tuning
from potluck.planning.costs import ComputeProfile, LinkProfile
from potluck.planning.measured_exchange import RingMeasurement

_FIRST_KEPT_S, _KEEP_EVERY_S = 10.0, 60.0  # a short run, too, is to spare the next one a start without figures


class KeptProfile:
    """The stored profile of this worker's model, and when it was last written."""

    def __init__(self, memory: ProfileMemory, say: Callable[[str], None]) -> None:
        self.link: LinkProfile | None = None
        self.peers: dict[str, LinkProfile] = {}
        """The measured links to other machines, by machine."""
        self.coding_factor = 1.0
        self.ring: RingMeasurement | None = None
        """What an earlier run of this model measured of the gradient exchange."""
        self._memory = memory
        self._say = say
        self._memory_cap: int | None = None
        self._next_at = time.monotonic() + _FIRST_KEPT_S
        self._has_failed = False

    def recall(self, digest: str, gradient_bytes: int) -> ComputeProfile | None:
        """The cost of this model that earlier runs and trials measured; None if there were none."""
        links = self._memory.links()  # of any model: links do not depend on it
        if links is not None:
            self.link, self.peers, self.coding_factor = links.link, links.peers, links.coding_factor
        stored = self._memory.recall(digest, gradient_bytes)
        if stored is None:
            return None
        self._memory_cap, self.ring = stored.compute.memory_cap, stored.ring
        return stored.compute

    def out_of_memory(self, num_samples: int) -> int:
        """Store that a micro-batch of `num_samples` did not fit; return the largest one to try next time."""
        self._memory_cap = self._memory.halve(num_samples)
        return self._memory_cap

    def recall_tuning(self) -> Tuning | None:
        """How this machine trains this model best, as an earlier run found it."""
        return self._memory.recall_tuning()

    def keep_tuning(self, tuning: Tuning) -> None:
        """Store it for the next run."""
        with self._failing_softly():
            self._memory.keep_tuning(tuning)

    @property
    def is_due(self) -> bool:
        """Whether it is time to write the profile again: the machine may be lost before the run ends."""
        return time.monotonic() > self._next_at

    def keep(
        self,
        profile: ComputeProfile | None,
        num_timed: int,
        ring: RingMeasurement | None,
        *,
        stretch: float = 1.0,
        overhead_s: float | None = None,
    ) -> None:
        """Write what this run has measured, for the next run, or for this one if the machine is lost and comes back."""
        if profile is None:
            return
        if num_timed >= LEAST_STEPS:
            self._next_at = time.monotonic() + _KEEP_EVERY_S
        with self._failing_softly():  # a micro_batch that the user chose is no limit of the machine
            self._memory.keep(replace(profile, memory_cap=self._memory_cap), num_timed, ring, stretch, overhead_s)

    @contextmanager
    def _failing_softly(self) -> Iterator[None]:
        """Say once that nothing can be kept; training goes on."""
        try:
            yield
        except (OSError, MeasureError) as error:
            if not self._has_failed:
                self._has_failed = True
                text = f"what this run shows of the machine cannot be kept in {self._memory.home}: {error}"
                self._say(f"{text}; free some space there, or set POTLUCK_HOME to another folder")
