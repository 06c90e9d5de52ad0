"""The code on torchft's thread, where a quorum becomes a process group whose members know each other.

torchft asks the lighthouse, and calls `RosteredGroup.configure`, on a thread of its own. The training thread starts
that with `Membership.ask` and waits for its end with `Membership.answer`; between the two calls the training thread
computes, and touches nothing that torchft's thread writes. The two threads share data only through `RosteredGroup`:

- The training thread writes `RosteredGroup.introduction` before it asks. No code changes these values afterwards, so
  that torchft's thread may read them at any time; only `introduce` reads them.
- torchft's thread writes every other attribute of `RosteredGroup`. The training thread reads them after `answer`.
- Also on torchft's thread, before and after `configure`: `quorums.QuorumClient._quorum`, which judges the lighthouse's
  answer, and `state_transfer.StateExchange`, through which a state is captured for a peer or fetched from one.
- The thread of `waits.LongWaits` reads `announced`: a tuple that is replaced as a whole.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias

from torchft.process_group import ProcessGroupWrapper, create_store_client

from potluck.core.errors import GroupError, PlanError
from potluck.engine.balance.worker_cost import WorkerCost
from potluck.engine.group.exchange_rule import ExchangeRule
from potluck.engine.group.islands import Island, split_into_islands
from potluck.engine.group.nccl import NcclGroups
from potluck.engine.group.roster import Member, Roster, read_signed, sign
from potluck.engine.group.session import GroupSession
from potluck.planning.backend_choice import choose_backend

Gloo: TypeAlias = Callable[[timedelta], Any]
"""Makes torchft's reconfigurable Gloo group, on the address that this worker listens on."""

_RETURN_S = 2.0  # until all workers have found a restarted lighthouse, each by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfDescription:
    """A worker's description of itself, made before it knows the number of workers."""

    member: Member
    cost: WorkerCost
    """A snapshot."""
    global_batch: int
    trained_with: tuple[str, ...]
    """The workers of this worker's last committed step."""


def introduce(introduction: SelfDescription, num_workers: int, new_lighthouse_since: float) -> Member:
    """This worker's entry in the roster. Runs on torchft's thread, and reads nothing but its arguments."""
    is_lighthouse_new = time.monotonic() - new_lighthouse_since < _RETURN_S
    member, cost = introduction.member, introduction.cost.introduction(introduction.global_batch // num_workers)
    return replace(
        member,
        introduction=replace(member.introduction, cost=cost),
        awaited=introduction.trained_with if is_lighthouse_new else (),
    )


class RosteredGroup(ProcessGroupWrapper):  # type: ignore[misc]
    """torchft's reconfigurable process group, which also knows its members and chooses a backend that all have.

    Reading every member's entry from the store first makes sure that all are there: Gloo itself tries to connect five
    times without a pause and then fails. An entry counts only with a proof that its writer knows the run's secret.
    """

    def __init__(self, timeout: timedelta, backend: str, secret: bytes, gloo: Gloo, nccl: NcclGroups) -> None:
        super().__init__(timeout=timeout)
        self._wanted = backend
        self._secret = secret
        self._gloo = gloo
        self._nccl = nccl
        self._made: dict[str, Any] = {}
        self.introduction: SelfDescription | None = None
        self.rule: ExchangeRule | None = None
        """Chooses how a group exchanges; set once, when the model is known."""
        self.new_lighthouse_since = float("-inf")
        """time.monotonic of a restarted lighthouse's first quorum."""
        self.backend = "gloo"
        self.session: GroupSession | None = None
        """The group of the last quorum; None if no process group formed."""
        self.announced: tuple[Member, ...] = ()
        """The members of the last quorum, whether their process group formed or not."""
        self.refusal: GroupError | PlanError | None = None
        self.stranger = ""
        """The member that does not know the run's secret; empty if there is none."""

    def configure(
        self, store_addr: str, replica_id: str, rank: int, world_size: int, quorum_id: int | None = None, *more: Any
    ) -> None:
        """Form the process group; torchft calls this on its thread whenever the quorum has changed."""
        self.session = None
        assert self.introduction is not None
        me = introduce(self.introduction, world_size, self.new_lighthouse_since)
        members = self._meet(store_addr, rank, world_size, me)
        self.announced = members
        try:
            check_alike(members, members[rank])
            assert self.rule is not None
            exchange = self.rule.choose(members, self.introduction.global_batch)
            choice = choose_backend(self._wanted, [member.backend_facts for member in members], exchange.mode)
            self.backend = choice.backend
        except (GroupError, PlanError) as refusal:
            self.refusal = refusal
            raise
        if self.backend not in self._made:
            self._made[self.backend] = (
                self._nccl.make(self._timeout, members) if self.backend == "nccl" else self._gloo(self._timeout)
            )
        self._pg = self._made[self.backend]
        super().configure(store_addr, replica_id, rank, world_size, quorum_id, *more)
        roster = Roster(members, rank)
        island = None
        if exchange.mode == "islands":
            islands = split_into_islands(roster, exchange.islands)
            island = self._form_island(store_addr, replica_id, quorum_id, roster, islands)
        self.session = GroupSession(
            roster=roster, quorum_id=quorum_id or 0, choice=choice, exchange=exchange, island=island
        )

    def _form_island(
        self,
        store_addr: str,
        replica_id: str,
        quorum_id: int | None,
        roster: Roster,
        islands: list[tuple[int, ...]],
    ) -> Island:
        """Form the process groups of this worker's island, and of all leaders if this worker is one."""
        number = next(index for index, places in enumerate(islands) if roster.mine in places)
        places = islands[number]
        mine = places.index(roster.mine)
        group: Any = None
        leaders: Any = None
        if len(places) > 1:
            group = self._made.setdefault("island", self._gloo(self._timeout))
            group.configure(f"{store_addr}/island{number}", replica_id, mine, len(places), quorum_id)
        if mine == 0:
            leaders = self._made.setdefault("leaders", self._gloo(self._timeout))
            leaders.configure(f"{store_addr}/leaders", replica_id, number, len(islands), quorum_id)
        return Island(Roster(tuple(roster.members[place] for place in places), mine), places, group, leaders)

    def break_off(self) -> None:
        """Close this worker's connections, so that peers that wait for it notice at once; a new quorum forms others."""
        for made in self._made.values():
            made.abort()

    def _meet(self, store_addr: str, rank: int, world_size: int, me: Member) -> tuple[Member, ...]:
        """Write this worker's entry into the quorum's store, and wait for every member's."""
        store = create_store_client(store_addr, timeout=self._timeout)
        store.set(f"potluck/{rank}", sign(self._secret, store_addr, rank, me))
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
        return tuple(members)

    def rank(self) -> int:
        """This worker's rank in the group; torchft's own wrapper always says 0."""
        return int(self.parent.rank())

    def errored(self) -> Exception | None:
        error: Exception | None = None if self._pg is None else self._pg.errored()
        return error


def check_alike(members: tuple[Member, ...], mine: Member) -> None:
    """Refuse to add up gradients of different models, or in different codes."""
    for other in members:
        if other.model != mine.model:
            raise GroupError(
                f"{other.name} trains another model than {mine.name}",
                fix="use the same script, settings and versions on every machine",
            )
        if other.exchange != mine.exchange:
            raise GroupError(
                f"{other.name} exchanges gradients as {other.exchange}, {mine.name} as {mine.exchange}",
                fix="start all machines with the same --exchange",
            )
