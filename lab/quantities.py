"""Link rates and memory sizes as people write them: 100mbit, 512M."""

import re

RATE_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
# Memory counts in powers of two, as docker and systemd read the same letters.
SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def rate_bits_per_s(text: str) -> int:
    """Read "100mbit" as 100,000,000 bits a second."""
    number, unit = _split(text)
    if unit.lower() not in RATE_UNITS:
        raise ValueError(f"{text!r} is not a link rate: write it as 1gbit, 100mbit or 500kbit")
    return _positive(number * RATE_UNITS[unit.lower()], text)


def size_bytes(text: str) -> int:
    """Read "512M" as 512 * 1024 * 1024 bytes."""
    number, unit = _split(text)
    letter = unit.upper().removesuffix("B").removesuffix("I")
    if letter not in SIZE_UNITS:
        raise ValueError(f"{text!r} is not a size: write it as 512M or 2G")
    return _positive(number * SIZE_UNITS[letter], text)


def show_size(num_bytes: float) -> str:
    """Write 536,870,912 bytes as "512M", the way cluster files do."""
    for unit, factor in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if num_bytes >= factor:
            number = num_bytes / factor
            return f"{number:.0f}{unit}" if number >= 10 or number == round(number) else f"{number:.1f}{unit}"
    return f"{num_bytes:.0f}"


def _split(text: str) -> tuple[float, str]:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match:
        raise ValueError(f"{text!r} is not a number with a unit")
    return float(match[1]), match[2]


def _positive(value: float, text: str) -> int:
    if value < 1:
        raise ValueError(f"{text!r} must be above zero")
    return round(value)
