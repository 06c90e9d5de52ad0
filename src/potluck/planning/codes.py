"""How gradients are written for the wire: the bytes that a code needs, and the time that coding takes."""

from collections.abc import Mapping
from dataclasses import dataclass

CHUNK = 128  # values that share one scale
SCALE_BYTES = 2
_FP32 = 4  # bytes of a value


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One way to write gradients."""

    name: str
    wire_part: float
    """Bytes on the wire for each byte of gradients in fp32."""
    coding_s_per_byte: float = 0.0
    """Seconds of one core for coding and decoding, for each byte of gradients in fp32."""
    is_all_to_all: bool = False
    """Parts go from every worker to every other and are summed there; otherwise sums go around a ring."""
    price_percent: float = 0.0
    """By how much higher the loss should end than in exact mode; 0 if nothing was measurable."""
    wire_stretch: float = 1.0
    """How much longer bytes take than in a ring. All-to-all, sum and all-gather follow each other, whereas a ring sends
    and sums at the same time: at 100 Mbit/s they took 1.4 to 1.7 times as long for the same bytes."""


# The seconds were measured on one core: 0.3, 1.2 and 1.5 ms for each MB of gradients.
EXACT = Code(name="exact", wire_part=1.0)
FP16 = Code(name="fp16", wire_part=0.5, coding_s_per_byte=0.3e-9)
INT8 = Code(
    name="int8",
    wire_part=(CHUNK + SCALE_BYTES) / (CHUNK * _FP32),
    coding_s_per_byte=1.2e-9,
    is_all_to_all=True,
    wire_stretch=1.5,
)
INT4 = Code(
    name="int4",
    wire_part=(CHUNK / 2 + SCALE_BYTES) / (CHUNK * _FP32),
    coding_s_per_byte=1.5e-9,
    is_all_to_all=True,
    price_percent=0.5,  # simulations of eight seeds: 0.0 % on average, 0.6 % without one in which exact stumbled
    wire_stretch=1.5,
)
CODES: Mapping[str, Code] = {code.name: code for code in (EXACT, FP16, INT8, INT4)}
