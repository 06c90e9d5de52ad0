"""What this run begins with from earlier ones, and what it keeps for the next."""

import time
from collections.abc import Callable
from dataclasses import replace

from potluck.core.errors import MeasureError
from potluck.engine.balance.profile_memory import ProfileMemory
from potluck.planning.costs import ComputeProfile, LinkProfile
from potluck.planning.measured_exchange import RingMeasurement

_KEEP_EVERY_S = 60.0


class KeptProfile:
    """The kept profile of this worker's model, and when it was last written."""

    def __init__(self, memory: ProfileMemory, say: Callable[[str], None]) -> None:
        self.link: LinkProfile | None = None
        self.ring: RingMeasurement | None = None
        """What an earlier run of this model showed of the exchange."""
        self._memory = memory
        self._say = say
        self._memory_cap: int | None = None
        self._kept_at = time.monotonic()
        self._has_failed = False

    def recall(self, digest: str, gradient_bytes: int) -> ComputeProfile | None:
        """The model is known: its cost by earlier runs and trials, if there were any."""
        stored = self._memory.recall(digest, gradient_bytes)
        if stored is None:
            return None
        self._memory_cap, self.link, self.ring = stored.compute.memory_cap, stored.link, stored.ring
        return stored.compute

    def out_of_memory(self, num_samples: int) -> int:
        """So many samples at once did not fit; returns how many will be tried next time."""
        self._memory_cap = self._memory.halve(num_samples)
        return self._memory_cap

    @property
    def is_due(self) -> bool:
        """Whether it is time to keep the profile: the machine may be lost before the run ends."""
        return time.monotonic() - self._kept_at > _KEEP_EVERY_S

    def keep(self, profile: ComputeProfile | None, num_timed: int, ring: RingMeasurement | None) -> None:
        """Keep what this run showed so far, for the next one, or for this one if the machine is lost and comes back."""
        self._kept_at = time.monotonic()
        if profile is None:
            return
        try:  # micro-batches by hand are no limit of the machine
            self._memory.keep(replace(profile, memory_cap=self._memory_cap), num_timed, ring)
        except (OSError, MeasureError) as error:
            if not self._has_failed:
                self._has_failed = True
                text = f"what this run shows of the machine cannot be kept in {self._memory.home}: {error}"
                self._say(f"{text}; free some space there, or set POTLUCK_HOME to another folder")
