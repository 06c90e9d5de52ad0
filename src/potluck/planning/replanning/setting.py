"""What stays the same while one group of workers trains: its members, and what they announced when the group formed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from potluck.planning.bench_rule import RE_FORMING_S
from potluck.planning.costs import Exchange, LinkProfile
from potluck.planning.measured_exchange import RingMeasurement
from potluck.planning.replanning.cost_report import UNKNOWN_COST, CostReport
from potluck.planning.sites import Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIntroduction:
    """What one worker announces to a group that it joins."""

    cost: CostReport = UNKNOWN_COST
    share: int | None = None
    """Fixed by hand, in proportion to other workers' shares; None leaves the share to the plan."""
    policy: str = "dynamic"
    keep: tuple[str, ...] = ()
    """Machines that are never benched."""
    link: LinkProfile | None = None
    """The link of the worker's machine, if it was measured."""
    peers: Mapping[str, LinkProfile] = field(default_factory=dict)
    """The links between the worker's machine and others, by the other machine, as far as they were measured."""
    coding_factor: float = 1.0
    """How much longer coding gradients takes on the worker's machine than planning/codes.py says."""
    last_step: int | None = None
    """The step at which the worker's script ends training, if known."""
    re_forming_s: float = 0.0
    """Seconds that the last change of the group cost the worker; 0 if there was none."""
    num_returns: int = 0
    """How often the worker came back from the bench."""
    kept_ring: RingMeasurement | None = None
    """The largest ring of an earlier run of this model, as measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSetting:
    """One group of workers; every member has the same GroupSetting."""

    workers: tuple[tuple[str, str], ...]
    """(name, machine), in the order of names."""
    costs: tuple[CostReport, ...]
    """Each worker's own cost, as far as it was known when the group formed."""
    batch: int
    exchange: Exchange
    policy: str = "dynamic"
    fixed_shares: tuple[int, ...] = ()
    """Shares that users gave, in proportion to each other; empty if the plan decides."""
    links: Mapping[str, LinkProfile] = field(default_factory=dict)
    """The measured links, by machine."""
    pairs: Pairs = field(default_factory=dict)
    """The measured links between two machines."""
    factors: tuple[float, ...] = ()
    """Each worker's coding factor; empty if all are 1."""
    keep: frozenset[str] = frozenset()
    """Machines that are never benched."""
    last_step: int | None = None
    """The earliest step at which a worker's script ends training; None if no worker knows."""
    re_forming_s: float = RE_FORMING_S
    """Seconds that a change of the group costs: the most that a worker measured, else a usual value."""
    num_returns: int = 0
    """How often a worker came back from the bench: the most of all workers."""
    kept_ring: RingMeasurement | None = None
    """The ring of exactly these machines in an earlier run, as measured, if all workers have saved it."""

    @classmethod
    def of(
        cls,
        workers: Sequence[tuple[str, str]],
        introductions: Sequence[WorkerIntroduction],
        batch: int,
        exchange: Exchange,
    ) -> "GroupSetting":
        """Combine the introductions of all workers; where their options differ, all workers still choose the same."""
        machines = sorted(machine for _, machine in workers)
        is_fixed = any(told.share is not None for told in introductions)
        return cls(
            workers=tuple(workers),
            costs=tuple(told.cost for told in introductions),
            batch=batch,
            exchange=exchange,
            policy=introductions[0].policy,
            fixed_shares=tuple(1 if told.share is None else told.share for told in introductions) if is_fixed else (),
            # The run itself measures the exchange, so the error of an earlier sweep does not count.
            links={
                machine: replace(told.link, error=0.0)
                for (_, machine), told in zip(workers, introductions, strict=True)
                if told.link is not None
            },
            factors=tuple(told.coding_factor for told in introductions),
            pairs=_pairs(workers, introductions),
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
    def coding_factors(self) -> tuple[float, ...]:
        return self.factors or (1.0,) * len(self.workers)

    @property
    def machines(self) -> frozenset[str]:
        return frozenset(machine for _, machine in self.workers)

    @property
    def is_planned(self) -> bool:
        """Whether there is a plan to make: no share is fixed, and there are several workers and a sample for each."""
        return not self.fixed_shares and 2 <= len(self.workers) <= self.batch


def _pairs(workers: Sequence[tuple[str, str]], introductions: Sequence[WorkerIntroduction]) -> Pairs:
    """The links between the group's machines; of two measurements of one link the faster, which nothing disturbed."""
    found: dict[frozenset[str], LinkProfile] = {}
    present = {machine for _, machine in workers}
    for (_, machine), told in zip(workers, introductions, strict=True):
        for other, link in told.peers.items():
            pair = frozenset((machine, other))
            if len(pair) == 2 and other in present:
                known = found.get(pair, link)
                found[pair] = replace(max(known, link, key=lambda one: one.bandwidth_bytes_per_s), error=0.0)
    return found


def _same_ring(machines: tuple[str, ...], rings: Sequence[RingMeasurement | None]) -> RingMeasurement | None:
    known = [ring for ring in rings if ring is not None and ring.machines == machines]
    if len(known) < len(rings) or len({ring.code for ring in known}) > 1:
        return None
    work_s, exposed_s = max(ring.work_s for ring in known), max(ring.exposed_s for ring in known)
    return RingMeasurement(machines=machines, work_s=work_s, exposed_s=exposed_s, code=known[0].code)
