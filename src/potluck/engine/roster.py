"""Who is in the process group: published by every worker when a group forms, before anybody connects."""

import hmac
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from torchft.process_group import ProcessGroupNCCL, ProcessGroupWrapper, create_store_client

from potluck.core.errors import GroupError
from potluck.engine.backend import choose_backend
from potluck.planning.rebalance import NUM_TOLD

Gloo: TypeAlias = Callable[[timedelta], Any]
"""Makes torchft's reconfigurable Gloo group, on the address that this worker listens on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One worker as the others see it."""

    name: str
    machine: str
    share: int | None
    """Its part by hand, in proportion to the others'; None leaves it to the plan."""
    step: int
    state_address: str
    model: str
    """A digest of the parameters' names, shapes and types: different models cannot be added up."""
    nccl: str
    weights: str = ""
    """A digest of the parameters' values; empty once this worker has trained with others."""
    policy: str = "dynamic"
    keep: Sequence[str] = ()
    told: Sequence[float] = (0.0,) * NUM_TOLD
    link: Sequence[float] = ()
    """Latency and bandwidth of its way to the others, if measured."""


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

    @property
    def has_fixed_shares(self) -> bool:
        return any(member.share is not None for member in self.members)

    @property
    def policy(self) -> str:
        """The first member's: where they differ, all must still take the same."""
        return self.members[0].policy

    @property
    def keep(self) -> list[str]:
        """Machines that somebody wants kept."""
        return sorted({name for member in self.members for name in member.keep})

    @property
    def me(self) -> Member:
        return self.members[self.mine]

    @property
    def example(self) -> Member:
        """Whose state counts where members of one step differ: of one who has trained, else of the first."""
        candidates = [self.members[index] for index in self.participants()]
        return next((member for member in candidates if not member.weights), candidates[0])

    def participants(self) -> list[int]:
        """Members that have that step's state; the others are healed first."""
        return [index for index, member in enumerate(self.members) if member.step == self.step]


def sign(secret: bytes, group: str, rank: int, member: Member) -> str:
    """A member's entry in the store, with the proof that its writer knows the run's secret, for this group only."""
    entry = json.dumps(asdict(member))
    return f"{_proof(secret, group, rank, entry)} {entry}"


def read_signed(secret: bytes, group: str, rank: int, content: bytes) -> Member | None:
    """The member, or None where the proof is missing or wrong."""
    proof, _, entry = content.decode(errors="replace").partition(" ")
    if not hmac.compare_digest(proof.encode(), _proof(secret, group, rank, entry).encode()):
        return None
    return Member(**json.loads(entry))


def _proof(secret: bytes, group: str, rank: int, entry: str) -> str:
    return hmac.digest(secret, f"potluck-member-1\n{group}\n{rank}\n{entry}".encode(), "sha256").hex()


class RosteredGroup(ProcessGroupWrapper):  # type: ignore[misc]
    """torchft's reconfigurable process group, that also knows its members and takes the backend that they share.

    Reading everyone's entry from the store first makes sure that all are there: Gloo itself tries to connect three
    times at once and then gives up. An entry counts only with a proof that its writer knows the run's secret.
    """

    def __init__(
        self, timeout: timedelta, me: Callable[[int], Member], backend: str, secret: bytes, gloo: Gloo
    ) -> None:
        super().__init__(timeout=timeout)
        self._me = me
        self._wanted = backend
        self._secret = secret
        self._gloo = gloo
        self._made: dict[str, Any] = {}
        self.backend = "gloo"
        self.roster: Roster | None = None
        self.refusal: GroupError | None = None
        self.stranger = ""
        """Who is in the group without knowing the secret, if anybody is."""
        self.is_new = False
        self.formation = 0
        """Which group this is: torchft counts up whenever one forms anew, after a spoiled step too."""

    def configure(
        self, store_addr: str, replica_id: str, rank: int, world_size: int, quorum_id: int | None = None, *more: Any
    ) -> None:
        self.roster = None
        store = create_store_client(store_addr, timeout=self._timeout)
        store.set(f"potluck/{rank}", sign(self._secret, store_addr, rank, self._me(world_size)))
        members = []
        for index in range(world_size):
            member = read_signed(self._secret, store_addr, index, store.get(f"potluck/{index}"))
            if member is None:
                self.stranger = f"member {index + 1} of {world_size}"
                raise GroupError(
                    f"{self.stranger} does not know this run's secret", fix="give POTLUCK_SECRET to members only"
                )
            members.append(member)
        self.stranger = ""
        try:
            check_same_model(tuple(members), members[rank])
            self.backend = choose_backend(self._wanted, [member.nccl for member in members])
        except GroupError as refusal:
            self.refusal = refusal
            raise
        if self.backend not in self._made:
            self._made[self.backend] = (
                ProcessGroupNCCL(timeout=self._timeout) if self.backend == "nccl" else self._gloo(self._timeout)
            )
        self._pg = self._made[self.backend]
        super().configure(store_addr, replica_id, rank, world_size, quorum_id, *more)
        self.roster = Roster(tuple(members), rank)
        self.formation = quorum_id or 0
        self.is_new = True

    def errored(self) -> Exception | None:
        error: Exception | None = None if self._pg is None else self._pg.errored()
        return error


def tell_changes(before: Roster, now: Roster, step: int, stall_s: float) -> list[str]:
    """One line for each machine that left or came since, and for workers of machines that stay."""
    if before.members == now.members:
        return []
    go_on = f"{_count(now.machines)} {'goes' if len(now.machines) == 1 else 'go'} on ({stall_s:.1f} s)"
    left = [f"{who} left at step {step}; {go_on}" for who in _missing_in(now, before)]
    return left + [f"{who} joined at step {step}; {go_on}" for who in _missing_in(before, now)]


def _missing_in(one: Roster, other: Roster) -> list[str]:
    """Whom the other has and this one has not."""
    machines = sorted(other.machines - one.machines)
    workers = [m for m in other.members if m.machine in one.machines and m.name not in one.names]
    return machines + [f"a worker of {member.machine} ({member.name})" for member in workers]


def _count(machines: set[str]) -> str:
    return f"{len(machines)} machine{'s' * (len(machines) != 1)}"


def check_same_model(members: tuple[Member, ...], mine: Member) -> None:
    """Refuse to add up gradients of different models."""
    for other in members:
        if other.model != mine.model:
            raise GroupError(
                f"{other.name} trains another model than {mine.name}",
                fix="use the same script, settings and versions on every machine",
            )
