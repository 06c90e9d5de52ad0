"""What stays the same while one group of workers trains: who they are, and what they told when the group formed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from potluck.planning.bench_rule import RE_FORMING_S
from potluck.planning.costs import Exchange, LinkProfile
from potluck.planning.measured_exchange import RingMeasurement
from potluck.planning.replanning.cost_report import UNKNOWN_COST, CostReport


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIntroduction:
    """What one worker tells a group that it joins."""

    cost: CostReport = UNKNOWN_COST
    share: int | None = None
    """Fixed by hand, in proportion to the others'; None leaves it to the plan."""
    policy: str = "dynamic"
    keep: tuple[str, ...] = ()
    """Machines that are never benched."""
    link: LinkProfile | None = None
    """Its machine's way to the others, if that was measured."""
    last_step: int | None = None
    """Where its script ends training, if that is known."""
    re_forming_s: float = 0.0
    """What it last saw a change of the group cost; 0 if it saw none."""
    num_returns: int = 0
    """How often it came back from the bench."""
    kept_ring: RingMeasurement | None = None
    """The largest ring that an earlier run of this model had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSetting:
    """One group of workers, as all of its members know it."""

    workers: tuple[tuple[str, str], ...]
    """(name, machine), in the order of names."""
    costs: tuple[CostReport, ...]
    """What each worker knew of its own cost when the group formed."""
    batch: int
    exchange: Exchange
    policy: str = "dynamic"
    fixed_shares: tuple[int, ...] = ()
    """Shares that people gave, in proportion to each other; empty where the plan decides."""
    links: Mapping[str, LinkProfile] = field(default_factory=dict)
    """By machine, those that were measured."""
    keep: frozenset[str] = frozenset()
    """Machines that are never benched."""
    last_step: int | None = None
    """The step with which training ends; None where no worker knows it."""
    re_forming_s: float = RE_FORMING_S
    """What a change of the group costs: the most that a worker saw, or what is usual."""
    num_returns: int = 0
    """How often a machine came back from the bench."""
    kept_ring: RingMeasurement | None = None
    """What an earlier run showed of exactly these machines, if all workers know of it."""

    @classmethod
    def of(
        cls,
        workers: Sequence[tuple[str, str]],
        introductions: Sequence[WorkerIntroduction],
        batch: int,
        exchange: Exchange,
    ) -> "GroupSetting":
        """What these workers told, put together. Where their wishes differ, all still take the same."""
        machines = sorted(machine for _, machine in workers)
        is_fixed = any(told.share is not None for told in introductions)
        return cls(
            workers=tuple(workers),
            costs=tuple(told.cost for told in introductions),
            batch=batch,
            exchange=exchange,
            policy=introductions[0].policy,
            fixed_shares=tuple(1 if told.share is None else told.share for told in introductions) if is_fixed else (),
            # The run itself measures the exchange: the doubt of an earlier sweep says nothing of it.
            links={
                machine: replace(told.link, error=0.0)
                for (_, machine), told in zip(workers, introductions, strict=True)
                if told.link is not None
            },
            keep=frozenset(machines).intersection(name for told in introductions for name in told.keep),
            last_step=min((told.last_step for told in introductions if told.last_step), default=None),
            re_forming_s=max(told.re_forming_s for told in introductions) or RE_FORMING_S,
            num_returns=max(told.num_returns for told in introductions),
            kept_ring=_same_ring(tuple(machines), [told.kept_ring for told in introductions]),
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.workers)

    @property
    def machines(self) -> frozenset[str]:
        return frozenset(machine for _, machine in self.workers)

    @property
    def is_planned(self) -> bool:
        """Whether there is a plan to make: nobody fixed the shares, and each of several workers can have a sample."""
        return not self.fixed_shares and 2 <= len(self.workers) <= self.batch


def _same_ring(machines: tuple[str, ...], rings: Sequence[RingMeasurement | None]) -> RingMeasurement | None:
    known = [ring for ring in rings if ring is not None and ring.machines == machines]
    if len(known) < len(rings):
        return None
    work_s, exposed_s = max(ring.work_s for ring in known), max(ring.exposed_s for ring in known)
    return RingMeasurement(machines=machines, work_s=work_s, exposed_s=exposed_s)
