"""Who is in the process group: published by every worker when a group forms, before anybody connects."""

import hmac
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from potluck.core.proofs import prove
from potluck.events.types import GroupChanged
from potluck.planning.replanning.setting import WorkerIntroduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One worker as the others see it."""

    name: str
    machine: str
    step: int
    state_address: str
    model: str
    """A digest of the parameters' names, shapes and types: different models cannot be added up."""
    nccl: str
    introduction: WorkerIntroduction
    """What the others plan with."""
    weights: str = ""
    """A digest of the parameters' values; empty once this worker has trained with others."""
    awaited: tuple[str, ...] = ()
    """Workers that it trained with until the lighthouse was restarted, for a moment after it has found the new one."""
    gradient_address: str = ""
    """Where it is dialled for gradients, if they go from machine to machine without gates."""


@dataclass(frozen=True, slots=True)
class Roster:
    """The members of one group, in the order of their names."""

    members: tuple[Member, ...]
    mine: int

    @property
    def step(self) -> int:
        """The step that the group goes on from."""
        return max(member.step for member in self.members)

    @property
    def names(self) -> set[str]:
        return {member.name for member in self.members}

    @property
    def machines(self) -> set[str]:
        return {member.machine for member in self.members}

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    def without(self, machines: Collection[str]) -> "Roster":
        """The members of the other machines; this worker must be one of them."""
        left = [member for member in self.members if member.machine not in machines]
        return Roster(tuple(left), left.index(self.me))

    @property
    def me(self) -> Member:
        return self.members[self.mine]

    @property
    def reference(self) -> Member:
        """Whose state counts where members of one step differ: of one who has trained, else of the first."""
        candidates = [self.members[index] for index in self.participants()]
        return next((member for member in candidates if not member.weights), candidates[0])

    @property
    def is_whole(self) -> bool:
        """Whether nobody waits for others to find a restarted lighthouse.

        To go on without them would be as right, but they would have to be healed.
        """
        return all(self.names.issuperset(member.awaited) for member in self.members)

    def participants(self) -> list[int]:
        """Members that have that step's state; the others are healed first."""
        return [index for index, member in enumerate(self.members) if member.step == self.step]


def sign(secret: bytes, group: str, rank: int, member: Member) -> str:
    """A member's entry in the store, with the proof that its writer knows the run's secret, for this group only."""
    entry = msgspec.json.encode(member).decode()
    return f"{_proof(secret, group, rank, entry)} {entry}"


def read_signed(secret: bytes, group: str, rank: int, content: bytes) -> Member | None:
    """The member, or None where the proof is missing or wrong."""
    proof, _, entry = content.decode(errors="replace").partition(" ")
    if not hmac.compare_digest(proof.encode(), _proof(secret, group, rank, entry).encode()):
        return None
    return msgspec.json.decode(entry, type=Member)


def _proof(secret: bytes, group: str, rank: int, entry: str) -> str:
    return prove(secret, "member of a group", group.encode(), b"%d" % rank, entry.encode()).hex()


def group_change(
    before: Roster, now: Roster, *, step: int, quorum_id: int, has_stopped: bool, stall_s: float
) -> GroupChanged | None:
    """Who left and who joined between two groups; None if they have the same workers.

    `step` is the first one that the new group committed, `has_stopped` whether somebody said before that it leaves.
    """
    left, joined = _missing_in(now, before), _missing_in(before, now)
    if not left and not joined:
        return None
    return GroupChanged(
        step=step,
        quorum_id=quorum_id,
        joined=joined,
        left=left,
        num_machines=len(now.machines),
        reason="joined" if not left else "stopped" if has_stopped else "lost",
        stall_s=stall_s,
    )


def _missing_in(one: Roster, other: Roster) -> dict[str, list[str]]:
    """Whom the other has and this one has not: machines, with their workers where this one has others of them."""
    missing: dict[str, list[str]] = {machine: [] for machine in sorted(other.machines - one.machines)}
    for member in other.members:
        if member.machine in one.machines and member.name not in one.names:
            missing.setdefault(member.machine, []).append(member.name)
    return missing
