"""The stored profile of a model on this machine: written by trials and runs, read by later runs."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch

from potluck.core.environment import keep_compiled_code
from potluck.measuring.memory import MemoryCap
from potluck.measuring.profile_store import StoredProfile, find_profile, newest_links, save_profile
from potluck.measuring.tuning import Tuning
from potluck.measuring.tuning_store import find_tuning_file, keep_tuning, tuning_file
from potluck.planning.costs import ComputeProfile
from potluck.planning.measured_exchange import RingMeasurement

LEAST_STEPS = 8  # fewer timings are not worth storing; a machine is benched after nine steps at the earliest


@dataclass(slots=True, kw_only=True)
class ProfileMemory:
    """The stored profile of one (machine, device, model, precision)."""

    home: Path
    machine: str
    device: str
    precision: str
    model: str | None
    """The name of this model's profiles: chosen by the user, or a digest of the model from `recall` on."""
    gradient_bytes: int = 0

    def recall(self, digest: str, gradient_bytes: int) -> StoredProfile | None:
        """The stored profile of the model; None if there is none, or only that of another model with the same name."""
        self.model = self.model or digest
        self.gradient_bytes = gradient_bytes
        stored = find_profile(self.home, self.machine, self.device, self.model, self.precision)
        return stored if stored is not None and stored.gradient_bytes == gradient_bytes else None

    def links(self) -> StoredProfile | None:
        """The newest profile of this machine, of any model, with measured links."""
        return newest_links(self.home, self.machine)

    def keep(
        self,
        compute: ComputeProfile | None,
        num_steps: int,
        ring: RingMeasurement | None = None,
        stretch: float = 1.0,
        overhead_s: float | None = None,
    ) -> None:
        """Store the cost that a run's steps showed, if they are enough; a trial's cost is less exact and replaced."""
        if compute is not None and num_steps >= LEAST_STEPS:
            self._save(compute, ring, stretch, overhead_s)

    def halve(self, failed: int) -> int:
        """Store that `failed` samples did not fit; return the largest micro-batch to try, at most half of them."""
        stored = self._stored()
        cap = MemoryCap(None if stored is None else stored.compute.memory_cap).halve(failed)
        before = ComputeProfile(fixed_s=0.0, per_sample_s=1e-3) if stored is None else stored.compute
        self._save(ComputeProfile(fixed_s=before.fixed_s, per_sample_s=before.per_sample_s, memory_cap=cap, error=1.0))
        return cap

    def recall_tuning(self) -> Tuning | None:
        """The stored tuning of the model; None if there is none."""
        found = find_tuning_file(self._tuning_file(), torch.__version__)
        if found is not None and found.is_compiled:
            keep_compiled_code(self.home)
        return found

    def keep_tuning(self, tuning: Tuning) -> None:
        """Store how this machine trains the model."""
        keep_tuning(self._tuning_file(), torch.__version__, tuning)

    def _tuning_file(self) -> Path:
        assert self.model is not None
        return tuning_file(self.home, self.machine, self.device, self.model, self.precision)

    def _stored(self) -> StoredProfile | None:
        assert self.model is not None
        return find_profile(self.home, self.machine, self.device, self.model, self.precision)

    def _save(
        self,
        compute: ComputeProfile,
        ring: RingMeasurement | None = None,
        stretch: float = 1.0,
        overhead_s: float | None = None,
    ) -> None:
        assert self.model is not None
        stored = self._stored()
        save_profile(
            self.home,
            StoredProfile(
                machine=self.machine,
                device=self.device,
                model=self.model,
                precision=self.precision,
                compute=compute,
                gradient_bytes=self.gradient_bytes,
                link=None if stored is None else stored.link,
                peers={} if stored is None else stored.peers,
                coding_factor=1.0 if stored is None else stored.coding_factor,
                ring=ring or (None if stored is None else stored.ring),
                stretch=stretch,
                overhead_s=overhead_s,
                measured_at=time.time(),
                specification="" if stored is None else stored.specification,
            ),
        )
