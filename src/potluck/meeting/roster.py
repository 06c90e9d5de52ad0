"""Who has joined: kept in a file, so that a host that starts again knows everyone by name."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from potluck.core.atomic import write_secret
from potluck.core.errors import MeetingError
from potluck.gates.loopback import MOST_MACHINES, address_of, choose_block
from potluck.meeting.wire import Facts, GateMember, LinkReport, Reach

AWAY_AFTER_S = 12.0  # more than two polls
LEAVE_S = 80.0  # for a step, and for what is still to be sent
State = Literal["getting ready", "here", "away", "left", "leaving"]


class Machine(BaseModel):
    """One machine as the host knows it."""

    facts: Facts
    number: int
    """Its loopback address, on every machine: see gates/loopback.py."""
    credential_hash: str
    reach: Reach | None = None
    """Where its gate may be dialled; None until it told."""
    devices: list[str] | None = None
    has_left: bool = False
    leaves_by: float | None = None
    """When a machine that was asked to leave is taken off the roster, whether it has finished or not."""
    last_heard: float = 0.0
    """By the host's clock, seconds since 1970."""
    samples_per_s: float | None = None
    """What it did of the batches of its last run."""
    links: list[LinkReport] = Field(default=[], exclude=True)
    """How it reaches the others, as it told last."""

    def state(self, now: float) -> State:
        if self.has_left:
            return "left"
        if now - self.last_heard > AWAY_AFTER_S:
            return "away"
        if self.leaves_by is not None:
            return "leaving"
        return "here" if self.devices is not None else "getting ready"


class _File(BaseModel):
    block: str = Field(default_factory=choose_block)
    machines: dict[str, Machine] = Field(default_factory=dict)


class Roster:
    """The machines, and who may speak for each."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        try:
            kept = _File.model_validate_json(path.read_bytes()) if path.is_file() else _File()
        except ValidationError:
            raise MeetingError(f"{path} is damaged", fix=f"rm {path}; every machine has to join again") from None
        self.block, self.machines = kept.block, kept.machines

    def enrol(self, facts: Facts) -> str:
        """Let a machine in, in the place of what it was before; returns its credential, of which only a hash stays."""
        credential = secrets.token_urlsafe(32)
        before = self.machines.get(facts.machine)
        for name, known in list(self.machines.items()):
            is_same = facts.certificate and known.facts.certificate == facts.certificate
            if is_same and name != facts.machine:
                del self.machines[name]  # the same machine, under the name that it had before
        self.machines[facts.machine] = Machine(
            facts=facts,
            number=before.number if before else self._free_number(),
            credential_hash=_hash(credential),
            samples_per_s=before.samples_per_s if before else None,
            last_heard=self._clock(),
        )
        self.save()
        return credential

    def _free_number(self) -> int:
        """Above all that are given out, while there are such: nobody gets a number that others may still use."""
        taken = {machine.number for machine in self.machines.values()}
        highest = max(taken, default=0)
        return highest + 1 if highest < MOST_MACHINES else min(set(range(1, MOST_MACHINES + 2)) - taken)

    def address_of(self, machine: str) -> str:
        """A machine's loopback address on every machine."""
        return address_of(self.block, self.machines[machine].number)

    def members(self) -> list[GateMember]:
        """Machines that the gates let in: all that have not left."""
        return [
            GateMember(
                machine=name,
                number=known.number,
                certificate=known.facts.certificate,
                addresses=known.reach.candidates,
                port=known.reach.port,
            )
            for name, known in self.machines.items()
            if not known.has_left and known.reach is not None
        ]

    def knows(self, machine: str, credential: str) -> bool:
        """Whether this credential is that machine's."""
        known = self.machines.get(machine)
        # An unknown name takes as long as a wrong credential.
        return hmac.compare_digest(_hash(credential), known.credential_hash if known else "0" * 64) and bool(known)

    def heard(self, machine: str) -> None:
        """A sign of life."""
        self.machines[machine].last_heard = self._clock()
        self.machines[machine].has_left = False

    def overdue(self) -> list[str]:
        """Machines that were asked to leave and are still here."""
        now = self._clock()
        return [name for name, one in self.machines.items() if one.leaves_by is not None and one.leaves_by < now]

    def remove(self, machine: str) -> None:
        self.machines.pop(machine, None)
        self.save()

    def state(self, machine: str) -> State:
        return self.machines[machine].state(self._clock())

    def present(self) -> list[str]:
        """Machines that could work now, in the order in which they joined."""
        return [name for name in self.machines if self.state(name) in ("here", "getting ready")]

    def save(self) -> None:
        write_secret(self._path, _File(block=self.block, machines=self.machines).model_dump_json(indent=1))


def _hash(credential: str) -> str:
    return hashlib.sha256(credential.encode()).hexdigest()
