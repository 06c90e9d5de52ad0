"""What is simulated: machines and links as they really are, the run, and what happens to it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from potluck.core.errors import SettingsError, did_you_mean
from potluck.planning.cluster import Cluster

Topology: TypeAlias = Literal["ring", "tree"]
TOPOLOGIES: tuple[Topology, ...] = ("ring", "tree")
_NEVER_A_TREE = ("int8", "int4", "rounds")


class SlowDown(NamedTuple):
    """A machine computes more slowly for a while, as when somebody uses it or it gets hot."""

    machine: str
    factor: float
    """Its speed meanwhile, as a part of its usual speed."""
    first_step: int
    last_step: int


class MachineLoss(NamedTuple):
    """A machine is lost in a step: killed, asleep or cut off; and comes back after some seconds, or never."""

    machine: str
    step: int
    away_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chances:
    """What happens at random, for each machine and hour."""

    pauses_per_h: float = 0.0
    """How often a machine stands still for pause_s: another program, a disk, a hot processor."""
    pause_s: float = 1.0
    losses_per_h: float = 0.0
    """How often a machine is lost; it comes back after away_s."""
    away_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """The network between the machines, beyond each machine's own link."""

    topology: Topology = "ring"
    shared_bytes_per_s: float | None = None
    """What all machines together can send at a time: a switch's backplane, or the air of one wireless network."""
    sites: Mapping[str, str] = field(default_factory=dict)
    """By machine: the site it stands at; machines without an entry stand at one site."""
    uplink_bytes_per_s: float | None = None
    """What all machines of a site together can send to other sites at a time."""
    packet_loss: float = 0.0
    """The part of all packets that is lost: TCP's rate falls with its square root."""
    variation: float = 0.05
    """The relative standard deviation of the slowest link's rate from step to step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRun:
    """The run, as its options say."""

    batch: int
    num_steps: int
    policy: str = "dynamic"
    keep: tuple[str, ...] = ()
    exchange: str = "exact"
    loss_price: float = 0.0
    round_steps: int | None = None
    warm_up_steps: int | None = None
    is_cold: bool = False
    """Whether workers begin without profiles, as in the first run of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One simulated run."""

    cluster: Cluster
    """The true costs of all machines, their links, and the exchange of gradients."""
    wanted: WantedRun
    wires: Wires = Wires()
    chances: Chances = Chances()
    slow_downs: tuple[SlowDown, ...] = ()
    losses: tuple[MachineLoss, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    """By machine: what it is, for the report; machines of one kind are written together where there are many."""
    host: str = ""
    """The machine that holds the meeting point, whose processor serves the others; empty: none of them."""
    host_load_per_machine: float = 0.0
    """The part of one core that the host spends on each joined machine."""
    seed: int = 0

    def __post_init__(self) -> None:
        machines = self.cluster.machines
        struck = [*(one.machine for one in self.slow_downs), *(one.machine for one in self.losses)]
        known = set(machines)
        for name in filter(None, [*struck, *self.wires.sites, *self.wanted.keep, self.host]):
            if name not in known:
                raise SettingsError(f"there is no machine {name!r} in the simulation", fix=did_you_mean(name, machines))
        self._check_wires()
        _check_events(self.slow_downs, self.losses, self.wanted.num_steps, known)

    def _check_wires(self) -> None:
        """Refuse a network of which a part would have no effect."""
        wires, sites = self.wires, {self.wires.sites.get(name, "") for name in self.cluster.machines}
        if not 0 <= wires.packet_loss < 1:
            raise SettingsError(
                f"a network cannot lose {wires.packet_loss:g} of its packets",
                fix="give the part that is lost, like 0.001 for one of a thousand",
            )
        if wires.uplink_bytes_per_s is not None and len(sites) == 1:
            raise SettingsError(
                "all machines stand at one site, so nothing goes over an uplink",
                fix="say which machines stand elsewhere, like --site far=fern,moss",
            )
        if wires.sites and wires.uplink_bytes_per_s is None:
            raise SettingsError(
                "a site makes no difference without an uplink between the sites", fix="add one, like --uplink 20mbit"
            )
        if wires.topology == "tree" and self.wanted.exchange in _NEVER_A_TREE:
            raise SettingsError(
                f"--exchange {self.wanted.exchange} sends to everybody at once, and never along a tree",
                fix="leave --topology out, or use --exchange exact or fp16",
            )


def _check_events(
    slow_downs: Sequence[SlowDown], losses: Sequence[MachineLoss], num_steps: int, machines: Collection[str]
) -> None:
    """Refuse events that could not happen in a run of so many steps."""
    for slow in slow_downs:
        if not 1 <= slow.first_step <= min(slow.last_step, num_steps):
            raise SettingsError(
                f"{slow.machine} cannot be slow from step {slow.first_step} to step {slow.last_step} of a run of "
                f"{num_steps} steps",
                fix="write the first and the last step, like --slow rosa=0.33@60-120, and give --steps",
            )
    gone: dict[str, int] = {}
    for loss in sorted(losses, key=lambda one: one.step):
        if not 1 <= loss.step <= num_steps:
            raise SettingsError(
                f"{loss.machine} cannot be lost at step {loss.step} of a run of {num_steps} steps",
                fix=f"choose a step from 1 to {num_steps}, or more --steps",
            )
        if loss.machine in gone:
            raise SettingsError(
                f"{loss.machine} cannot be lost at step {loss.step}: it is lost at step {gone[loss.machine]}, and does "
                "not come back",
                fix=f"say when it comes back, like --lose {loss.machine}@{gone[loss.machine]}+30s",
            )
        if loss.away_s is None:
            gone[loss.machine] = loss.step
    if machines and gone.keys() >= set(machines):
        raise SettingsError(
            "all machines are lost, and none comes back",
            fix=f"let one come back, like --lose {next(iter(gone))}@{next(iter(gone.values()))}+30s",
        )
