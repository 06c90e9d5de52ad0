"""Who has joined: kept in a file, so that a host that starts again knows everyone by name."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from potluck.core.atomic import write_secret
from potluck.core.errors import MeetingError
from potluck.core.plain_file import read_plain
from potluck.core.shell_words import quote
from potluck.gates.loopback import MOST_MACHINES, address_of, choose_block
from potluck.meeting.host.kept_file import why_unreadable
from potluck.meeting.wire import Address, Digest, GateMember, Introduction, LinkReport, MachineName, Reach

AWAY_AFTER_S = 12.0  # more than two polls
LEAVE_S = 80.0  # for a step, and for what is still to be sent
State = Literal["getting ready", "here", "away", "left", "leaving"]


class Machine(BaseModel):
    """One machine as the host knows it."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    facts: Introduction
    number: int = Field(ge=1, le=MOST_MACHINES)
    """Its loopback address, on every machine: see gates/loopback.py."""
    credential_hash: Digest
    reach: Reach | None = None
    """Where its gate may be dialled; None until it told."""
    devices: list[str] | None = None
    has_left: bool = False
    leaves_by: float | None = None
    """When a machine that was asked to leave counts as gone, whether it has finished or not."""
    is_sent_away: bool = False
    """Asked to leave by another machine: its credential ends with it. One that leaves by itself may come back."""
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

    def is_like(self, other: "Machine | None") -> bool:
        """Whether nothing that is worth a word or a write has changed: not the sign of life, nor the links."""
        return other is not None and self == other.model_copy(
            update={"last_heard": self.last_heard, "links": self.links}
        )


class _File(BaseModel):
    block: Address = Field(default_factory=choose_block)
    machines: dict[MachineName, Machine] = Field(default_factory=dict)


class MachineRoster:
    """The machines, and who may speak for each."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        try:
            kept = _File.model_validate_json(read_plain(path)) if path.exists() else _File()
        except (ValidationError, OSError) as error:
            raise MeetingError(
                why_unreadable(path, error), fix=f"rm -r {quote(path)}; every machine has to join again"
            ) from None
        self.block = kept.block
        self.machines: Mapping[str, Machine] = kept.machines
        self._is_stale = False
        self.unsaved: OSError | None = None
        """Why the file is not what it should be: a disk that is full just now."""

    def enrol(self, facts: Introduction, kept: str | None = None) -> str:
        """Let a machine in, in the place of what it was before; returns its credential, of which only a hash stays.

        The credential is a new one, unless the machine keeps one that the roster knows.
        """
        credential = kept if kept and self.knows(facts.machine, kept) else secrets.token_urlsafe(32)
        machines, before = self.machines, self.machines.get(facts.machine)
        others = {
            name: known
            for name, known in machines.items()  # the same machine, under the name that it had before, goes
            if name == facts.machine or not facts.certificate or known.facts.certificate != facts.certificate
        }
        enrolled = Machine(
            facts=facts,
            number=before.number if before else _free_number(others),
            credential_hash=_hash(credential),
            samples_per_s=before.samples_per_s if before else None,
            last_heard=self._clock(),
        )
        self.machines = {**others, facts.machine: enrolled}
        self.save()
        if self.unsaved is not None:  # after a restart nobody would know this machine: it is not let in
            self.machines = machines
            raise self.unsaved
        return credential

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

    def change(self, machine: str, **changes: object) -> None:
        """Change what is known of a machine."""
        self.become({**self.machines, machine: self.machines[machine].model_copy(update=changes)})

    def become(self, machines: Mapping[str, Machine]) -> bool:
        """Take on what a message made of the machines; True if others should hear of it.

        Who leaves is written down at once: after a restart, a machine that was sent away must not be known. What every
        machine tells again waits for the next `save_again`.
        """
        if machines is self.machines:
            return False
        now = self._clock()
        before, self.machines = self.machines, machines
        changed = [(before.get(name), known) for name, known in machines.items() if known is not before.get(name)]
        news = [(old, new) for old, new in changed if not new.is_like(old)]
        has_left = len(machines) < len(before) or any(
            old is not None and (old.has_left, old.leaves_by) != (new.has_left, new.leaves_by) for old, new in news
        )
        if has_left:
            self.save()
        self._is_stale = bool(self._is_stale or (news and not has_left))
        return has_left or bool(news) or any(old is None or old.state(now) != new.state(now) for old, new in changed)

    def state(self, machine: str) -> State:
        return self.machines[machine].state(self._clock())

    def present(self) -> list[str]:
        """Machines that could work now, in the order in which they joined."""
        return [name for name in self.machines if self.state(name) in ("here", "getting ready")]

    def save_again(self) -> None:
        """Write the file if it is not what it should be."""
        if self._is_stale or self.unsaved is not None:
            self.save()

    def save(self) -> None:
        """Write the file; if the disk does not take it, all is kept here until it does."""
        self._is_stale = False
        try:
            self._write()
        except OSError as error:
            self.unsaved = error
        else:
            self.unsaved = None

    def _write(self) -> None:
        write_secret(self._path, _File(block=self.block, machines=dict(self.machines)).model_dump_json(indent=1))


def _hash(credential: str) -> str:
    return hashlib.sha256(credential.encode()).hexdigest()


def _free_number(machines: Mapping[str, Machine]) -> int:
    """Above all that are given out, while there are such: nobody gets a number that others may still use."""
    taken = {machine.number for machine in machines.values()}
    highest = max(taken, default=0)
    return highest + 1 if highest < MOST_MACHINES else min(set(range(1, MOST_MACHINES + 2)) - taken)
