"""Names of graphics cards as people say them: RTX 3070 instead of cuda:0 or NVIDIA GeForce RTX 3070."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from potluck.core.printable import printable

_MAKERS = re.compile(
    r"\((?:R|TM|C)\)|\b(?:NVIDIA|GeForce|AMD|Intel|Corporation|Graphics|GPU)\b|\bRadeon(?= RX\b)", re.I
)
_NUMBERED = re.compile(r"(.+) \(\d+ of (\d+)\)")
_LONGEST = 60


def short_name(name: str) -> str:
    """A card's name without maker and trade mark, safe to print: NVIDIA GeForce RTX 3070 becomes RTX 3070."""
    text = " ".join(printable(name).split())
    return (" ".join(_MAKERS.sub(" ", text).split()) or text)[:_LONGEST]


def labels(cards: Mapping[str, str]) -> dict[str, str]:
    """What to call each device, from a machine's cards by device; equal cards are numbered: RTX 3070 (1 of 2)."""
    short = {device: short_name(name) for device, name in cards.items() if name}
    total, seen = Counter(short.values()), Counter[str]()
    found = {}
    for device, name in short.items():
        seen[name] += 1
        found[device] = name if total[name] == 1 else f"{name} ({seen[name]} of {total[name]})"
    return found


def label(device: str, cards: Mapping[str, str]) -> str:
    """What to call one device: the label of its card, or the device itself where its card is not known."""
    known = labels(cards)
    return known.get(device) or known.get(f"{device}:0") or device  # `cuda` is the first card


def together(names: Iterable[str]) -> str:
    """Labels of one machine's devices in one text; all of several equal cards are counted: 2 x RTX 3070, GTX 1660."""
    names = list(names)
    parts = [_NUMBERED.fullmatch(name) for name in names]
    number = Counter((part[1], int(part[2])) for part in parts if part)
    texts = []
    for name, part in zip(names, parts, strict=True):
        is_whole = part is not None and number[part[1], int(part[2])] == int(part[2])
        texts.append(f"{part[2]} x {part[1]}" if part and is_whole else name)
    return ", ".join(dict.fromkeys(texts))
