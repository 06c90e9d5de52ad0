"""What a joined machine can be asked to measure, and what it answers: plain data, like the doctor's words."""

from typing import Annotated

import msgspec

from potluck.doctor.probing import asks
from potluck.doctor.probing.asks import ProbeMessage

Word = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,62}$")]

MEASURE_S = 300.0  # how long a model may be measured
SWEEP_S = 120.0  # and all links of a cluster


class MeasureModel(ProbeMessage, frozen=True, kw_only=True):
    """Train a model for a few seconds at several batch sizes, and keep what that showed."""

    model: Word
    model_size: Word
    mixed_precision: Word
    device: Word
    global_batch: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
    seconds: Annotated[float, msgspec.Meta(ge=0.1, le=120.0)]
    memory_limit: Word | None = None
    latency_s: float | None = None
    """Of the machine's link, if that was measured before; and its rate."""
    bytes_per_s: float | None = None


class TellProfiles(ProbeMessage, frozen=True, kw_only=True):
    """Which profiles of this model are kept there?"""

    model: Word
    """With its size: resnet18-base."""
    mixed_precision: Word


class ProfilesTold(ProbeMessage, frozen=True, kw_only=True):
    """The machine's own profiles, each as JSON."""

    profiles: tuple[str, ...]


class SweepLinks(ProbeMessage, frozen=True, kw_only=True):
    """Take part in a sweep of all links."""

    meeting: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    rank: Annotated[int, msgspec.Meta(ge=0, le=10_000)]
    machines: tuple[Word, ...]
    address: str
    """Where this machine listens."""


class LinkSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A link, or the ring of all."""

    latency_s: float
    bytes_per_s: float
    error: float


class LinksSwept(ProbeMessage, frozen=True, kw_only=True):
    """What all found alike; pairs by their names, in the order of the machines."""

    ring: LinkSeen
    pairs: dict[str, LinkSeen]
    machines: dict[str, LinkSeen]


Ask = asks.Ask | MeasureModel | TellProfiles | SweepLinks
Answer = asks.Answer | ProfilesTold | LinksSwept
