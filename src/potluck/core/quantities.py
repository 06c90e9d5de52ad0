"""Rates, sizes and durations as people write them: 100mbit, 512M, 2ms."""

import re

from potluck.core.errors import SettingsError

_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def rate_bytes_per_s(text: str) -> float:
    """Read 100mbit as 12,500,000 bytes a second."""
    number, unit = _split(text)
    if unit not in _BITS or number <= 0:
        raise SettingsError(f"{text!r} is not a link's rate", fix="write it as 1gbit, 100mbit or 500kbit")
    return number * _BITS[unit] / 8


def size_bytes(text: str) -> int:
    """Read 512M as 512 * 1024 * 1024 bytes."""
    number, unit = _split(text)
    if unit not in _BYTES or number <= 0:
        raise SettingsError(f"{text!r} is not a size", fix="write it as 512M or 2G")
    return round(number * _BYTES[unit])


def duration_s(text: str) -> float:
    """Read 2ms as 0.002 seconds."""
    number, unit = _split(text)
    if unit not in _SECONDS:
        raise SettingsError(f"{text!r} is not a duration", fix="write it as 2ms or 500us")
    return number * _SECONDS[unit]


def _split(text: str) -> tuple[float, str]:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    return (float(match[1]), match[2]) if match else (0.0, "")
