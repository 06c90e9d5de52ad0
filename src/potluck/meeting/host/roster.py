"""The roster: machines that have joined, kept in a file, so that a host that starts again knows them."""

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
from potluck.meeting.host.reported_links import ReportedLinks
from potluck.meeting.wire import Address, Digest, GateMember, Introduction, MachineName, Reach

AWAY_AFTER_S = 12.0  # more than two polls
LEAVE_S = 80.0  # for a step, and for sending the remaining files
State = Literal["getting ready", "here", "away", "left", "leaving"]


class Machine(BaseModel):
    """One machine as the host knows it."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    facts: Introduction
    number: int = Field(ge=1, le=MOST_MACHINES)
    """Gives the machine's loopback address, the same on every machine: see gates/loopback.py."""
    credential_hash: Digest
    reach: Reach | None = None
    """Where the machine's gate may be dialled; None until the machine has reported it."""
    devices: list[str] | None = None
    cards: dict[str, str] = Field(default_factory=dict)
    """By device: the name of its card, where the machine knows it."""
    has_left: bool = False
    leaves_by: float | None = None
    """When a machine that was asked to leave counts as gone, whether it has finished or not."""
    is_sent_away: bool = False
    """Another machine asked this one to leave: its credential ends then. One that leaves by itself may come back."""
    last_heard: float = 0.0
    """When the machine last sent a request, by the host's clock, in seconds since 1970."""
    samples_per_s: float | None = None
    """The machine's own speed in its last run."""
    links: ReportedLinks = Field(default=ReportedLinks(), exclude=True)
    """How the machine reaches the others, by its last report."""

    def state(self, now: float) -> State:
        if self.has_left:
            return "left"
        if now - self.last_heard > AWAY_AFTER_S:
            return "away"
        if self.leaves_by is not None:
            return "leaving"
        return "here" if self.devices is not None else "getting ready"

    def is_like(self, other: "Machine | None") -> bool:
        """Whether `other` differs at most in `last_heard` and `links`, whose changes are not worth a save."""
        return other is not None and self == other.model_copy(
            update={"last_heard": self.last_heard, "links": self.links}
        )


class _File(BaseModel):
    block: Address = Field(default_factory=choose_block)
    machines: dict[MachineName, Machine] = Field(default_factory=dict)


class _ShownMember:
    """What other machines' gates know of a machine, made once for the same facts."""

    def __init__(self, known: Machine) -> None:
        assert known.reach is not None
        self._facts, self._number, self._reach = known.facts, known.number, known.reach
        self.member = GateMember(
            machine=known.facts.machine,
            number=known.number,
            certificate=known.facts.certificate,
            addresses=known.reach.candidates,
            port=known.reach.port,
        )

    def shows(self, known: Machine) -> bool:
        """Whether it would be made the same again."""
        is_same = known.facts is self._facts and known.number == self._number
        return is_same and (known.reach is self._reach or known.reach == self._reach)


class MachineRoster:
    """All machines that have joined, and the hash of each one's credential."""

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
        self._members: dict[str, _ShownMember] = {}
        self._is_stale = False
        self.unsaved: OSError | None = None
        """Why the last save failed, for example on a full disk; None if it succeeded."""

    def enrol(self, facts: Introduction, kept: str | None = None) -> str:
        """Add a machine, in place of its earlier entry; returns its credential, of which only a hash is kept.

        The credential is new, unless `kept` is the one that the roster knows for this machine.
        """
        credential = kept if kept and self.knows(facts.machine, kept) else secrets.token_urlsafe(32)
        machines, before = self.machines, self.machines.get(facts.machine)
        others = {
            name: known
            for name, known in machines.items()  # without this machine's entry under an earlier name
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
        if self.unsaved is not None:  # after a restart the host would not know this machine: do not admit it
            self.machines = machines
            raise self.unsaved
        return credential

    def address_of(self, machine: str) -> str:
        """A machine's loopback address, the same on every machine."""
        return address_of(self.block, self.machines[machine].number)

    def members(self) -> list[GateMember]:
        """Machines that the gates let in: all that have not left and have reported where their gate is."""
        before, self._members = self._members, {}
        for name, known in self.machines.items():
            if known.has_left or known.reach is None:
                continue
            kept = before.get(name)  # hundreds of members, of whom one has changed
            if kept is None or not kept.shows(known):
                kept = _ShownMember(known)
            self._members[name] = kept
        return [kept.member for kept in self._members.values()]

    def knows(self, machine: str, credential: str) -> bool:
        """Whether this credential is that machine's."""
        known = self.machines.get(machine)
        # An unknown name takes as long as a wrong credential.
        return hmac.compare_digest(_hash(credential), known.credential_hash if known else "0" * 64) and bool(known)

    def change(self, machine: str, **changes: object) -> None:
        """Change fields of a machine's entry."""
        self.become({**self.machines, machine: self.machines[machine].model_copy(update=changes)})

    def become(self, machines: Mapping[str, Machine]) -> bool:
        """Replace all entries; returns whether the change should be announced to waiting requests.

        A leave is saved at once: after a restart, the host must not know a machine that was sent away. Other changes,
        which machines report again, wait for the next `save_again`.
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
        """Save if there are changes since the last save, or if that failed."""
        if self._is_stale or self.unsaved is not None:
            self.save()

    def save(self) -> None:
        """Write the file; if that fails, `unsaved` says why, and `save_again` retries."""
        self._is_stale = False
        try:
            self._write()
        except OSError as error:
            self.unsaved = error
        else:
            self.unsaved = None

    def _write(self) -> None:
        write_secret(self._path, _File(block=self.block, machines=dict(self.machines)).model_dump_json(indent=1))

    def as_json(self) -> str:
        """The roster for a successor, without the times at which machines were heard: they change all the time."""
        machines = {name: known.model_copy(update={"last_heard": 0.0}) for name, known in self.machines.items()}
        return _File(block=self.block, machines=machines).model_dump_json()


def _hash(credential: str) -> str:
    return hashlib.sha256(credential.encode()).hexdigest()


def _free_number(machines: Mapping[str, Machine]) -> int:
    """One above the highest number taken, while there is one: others may still use a lower one that is free."""
    taken = {machine.number for machine in machines.values()}
    highest = max(taken, default=0)
    return highest + 1 if highest < MOST_MACHINES else min(set(range(1, MOST_MACHINES + 2)) - taken)
