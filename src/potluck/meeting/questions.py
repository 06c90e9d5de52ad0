"""Measuring questions to a joined machine and its answers: plain data, like the doctor's in doctor/probing/asks.py."""

from typing import Annotated

import msgspec

from potluck.doctor.probing import asks
from potluck.doctor.probing.asks import ProbeMessage

Word = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,62}$")]

MEASURE_S = 300.0  # timeout of one MeasureModel
SWEEP_S = 120.0  # timeout of one SweepLinks
SELF_TEST_S = 590.0  # timeout of one TestMachine; the host keeps a question for ten minutes at most


class LinkSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Measured cost of one link, or of the ring over all machines."""

    latency_s: float
    bytes_per_s: float
    error: float


class MeasureModel(ProbeMessage, frozen=True, kw_only=True):
    """Train a model for a few seconds at several batch sizes, and store the profile on the machine."""

    model: Word
    model_size: Word
    mixed_precision: Word
    device: Word
    global_batch: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
    seconds: Annotated[float, msgspec.Meta(ge=0.1, le=120.0)]
    memory_limit: Word | None = None
    tuning: bool = True
    """Whether the machine first looks for its fastest way to do the same maths."""
    compiles: bool = False
    """Whether the machine tries torch.compile, too."""
    latency_s: float | None = None
    """Latency of the machine's link, if a sweep has measured it; `bytes_per_s` is the bandwidth of the same link."""
    bytes_per_s: float | None = None
    peers: dict[Word, LinkSeen] = msgspec.field(default_factory=dict)
    """The links to other machines, by machine, if a sweep has measured them."""


class TellProfiles(ProbeMessage, frozen=True, kw_only=True):
    """Ask for the profiles of this model that the machine has stored of itself."""

    model: Word
    """Model and size: resnet18-base."""
    mixed_precision: Word


class ProfilesTold(ProbeMessage, frozen=True, kw_only=True):
    """Profiles of the machine that answers, each as JSON."""

    profiles: tuple[str, ...]


class SweepLinks(ProbeMessage, frozen=True, kw_only=True):
    """Take part in a sweep: a measurement of all links between the machines."""

    meeting: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    rank: Annotated[int, msgspec.Meta(ge=0, le=10_000)]
    machines: tuple[Word, ...]
    address: str
    """The address on which this machine listens."""


class TestMachine(ProbeMessage, frozen=True, kw_only=True):
    """Do the self-test of this machine alone."""

    checks: tuple[Word, ...] = ()
    """All if empty."""
    is_quick: bool = False


class MachineTested(ProbeMessage, frozen=True, kw_only=True):
    """The result of a self-test, as JSON of selftest.document.Document."""

    document: str


class LinksSwept(ProbeMessage, frozen=True, kw_only=True):
    """Result of a sweep, equal on all machines; a key of `pairs` is two names, in the order of SweepLinks.machines."""

    ring: LinkSeen
    pairs: dict[str, LinkSeen]
    machines: dict[str, LinkSeen]


Ask = asks.Ask | MeasureModel | TellProfiles | SweepLinks | TestMachine
Answer = asks.Answer | ProfilesTold | LinksSwept | MachineTested
