"""The members of a process group: every worker publishes its entry when a group forms, before workers connect."""

import hmac
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from potluck.core.proofs import prove
from potluck.engine.order.pieces import Piece
from potluck.events.types import GroupChanged
from potluck.planning.backend_choice import BackendFacts
from potluck.planning.costs import Exchange
from potluck.planning.replanning.setting import GroupSetting, WorkerIntroduction


@dataclass(frozen=True, slots=True)
class StateDigest:
    """Two workers at one step have the same training state if their digests are the same.

    Two workers can be at one step with different states: A committed a step that failed on B and C, and was gone before
    they asked for the next quorum, so that B and C made this step again. Such states differ by rounding in exact
    training, and by more if gradients travel in code or a step is a round.
    """

    weights: str = ""
    """Of the parameters' values; empty once there is a history."""
    history: str = ""
    """Of the commits that led to this state; empty before the first."""


@dataclass(frozen=True, slots=True)
class RoundEntry:
    """What a worker that trains in rounds tells the others."""

    steps: int = 0
    """Steps of a round; 0 before the first."""
    done: tuple[Piece, ...] = ()
    """What it has trained of the round that begins with its step, and not yet exchanged."""


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
    """The numbers from which the others plan."""
    state: StateDigest = StateDigest()
    awaited: tuple[str, ...] = ()
    """The workers that it trained with before a restart of the lighthouse; empty 2 s after it has found the new one."""
    exchange: str = "exact"
    """How this worker sends gradients: all must do the same."""
    device: str = "cpu"
    card: str = ""
    """Identity of the CUDA device: two workers that share one cannot use NCCL."""
    lan_address: str = ""
    """Where other machines reach this worker's machine past its gate; empty if it is not known."""
    host: str = ""
    """The machine that was the host when this worker was started."""
    gradient_address: str = ""
    """Where peers dial this worker for gradients, if gradients do not go through gates."""

    round: RoundEntry = RoundEntry()

    @property
    def backend_facts(self) -> BackendFacts:
        return BackendFacts(machine=self.machine, device=self.device, nccl=self.nccl, card=self.card)


@dataclass(frozen=True, slots=True)
class Roster:
    """The members of one group, in the order of their names."""

    members: tuple[Member, ...]
    mine: int

    @property
    def step(self) -> int:
        """The step that the group continues from: the latest of its members' steps."""
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
        """The roster without the members on these machines; this worker must stay in it."""
        left = [member for member in self.members if member.machine not in machines]
        return Roster(tuple(left), left.index(self.me))

    @property
    def me(self) -> Member:
        return self.members[self.mine]

    @property
    def reference(self) -> Member:
        """The member whose state the others take if members at one step differ.

        Its state comes from training if any of theirs does, and is the state that most of them have.
        """
        candidates = [self.members[index] for index in self.participants()]
        candidates = [member for member in candidates if not member.state.weights] or candidates
        held = Counter(member.state for member in candidates)
        return max(candidates, key=lambda member: held[member.state])  # of several, the first

    @property
    def writes(self) -> bool:
        """Whether this worker saves files for all: the first on the host's machine, or of all if it has none.

        The host may have changed since a worker was started, so the one counts that most members were started with: by
        their own knowledge each could hold another one for the writer.
        """
        named = Counter(member.host for member in self.members)
        host = max(sorted(named), key=lambda name: named[name])
        on_host = (index for index, member in enumerate(self.members) if member.machine == host)
        return self.mine == next(on_host, 0)

    @property
    def holders(self) -> list[Member]:
        """The members that have the state which the group continues from."""
        state = self.reference.state
        return [member for member in self.members if member.step == self.step and member.state == state]

    @property
    def is_whole(self) -> bool:
        """Whether no member waits for workers that have not found the restarted lighthouse yet.

        Training on without these workers would be correct too, but they would have to be healed.
        """
        return all(self.names.issuperset(member.awaited) for member in self.members)

    def participants(self) -> list[int]:
        """The indices of the members that have the latest step's state; the others are healed first."""
        return [index for index, member in enumerate(self.members) if member.step == self.step]


def setting_of(members: Sequence[Member], global_batch: int, exchange: Exchange) -> GroupSetting:
    """What plans are made from, by what the members say about themselves."""
    workers = [(member.name, member.machine) for member in members]
    return GroupSetting.of(workers, [member.introduction for member in members], global_batch, exchange)


def sign(secret: bytes, group: str, rank: int, member: Member) -> str:
    """A member's entry in the store, with a proof, for this group only, that its writer knows the run's secret."""
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
    """The event that names who left and who joined between two groups; None if they have the same workers.

    `step`: the first step that the new group committed. `has_stopped`: a worker had announced that it would leave.
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
    """The machines of `other` that `one` lacks; for machines in both, the workers that `one` lacks."""
    missing: dict[str, list[str]] = {machine: [] for machine in sorted(other.machines - one.machines)}
    for member in other.members:
        if member.machine in one.machines and member.name not in one.names:
            missing.setdefault(member.machine, []).append(member.name)
    return missing
