"""Pieces of a round's samples: which positions workers have trained, and which are still to be trained.

A round's samples are the positions from 0 to its number of samples. A piece is a range of them, as (start, stop).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

Piece: TypeAlias = tuple[int, int]


def num_samples(pieces: Iterable[Piece]) -> int:
    """How many samples the pieces have."""
    return sum(stop - start for start, stop in pieces)


def missing(total: int, done: Iterable[Piece]) -> list[Piece]:
    """The pieces of the positions from 0 to `total` that are not done."""
    left, position = [], 0
    for start, stop in sorted(done):
        if start > position:
            left.append((position, start))
        position = max(position, stop)
    return [*left, (position, total)] if position < total else left


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """The same positions in as few pieces as possible."""
    whole: list[Piece] = []
    for start, stop in sorted(pieces):
        if whole and whole[-1][1] == start:
            whole[-1] = (whole[-1][0], stop)
        else:
            whole.append((start, stop))
    return whole


def overlap(one: Iterable[Piece], other: Sequence[Piece]) -> bool:
    """Whether a position is in both."""
    return any(start < its_stop and its_start < stop for start, stop in one for its_start, its_stop in other)


def take(pieces: Iterable[Piece], start: int, stop: int) -> list[Piece]:
    """What the range from `start` to `stop` is of these pieces, if they are counted through one after the other."""
    taken, before = [], 0
    for first, last in pieces:
        size = last - first
        low, high = max(start - before, 0), min(stop - before, size)
        if low < high:
            taken.append((first + low, first + high))
        before += size
    return taken


def cut(piece: Piece, num_parts: int) -> Iterator[Piece]:
    """The piece in consecutive parts whose sizes differ by at most one."""
    start, stop = piece
    for index in range(num_parts):
        yield (
            start + (stop - start) * index // num_parts,
            start + (stop - start) * (index + 1) // num_parts,
        )


def kept_of(claims: Sequence[Sequence[Piece]]) -> list[Sequence[Piece]]:
    """Of each worker's done pieces those that count: none of a worker whose pieces another before it has done too."""
    kept: list[Sequence[Piece]] = []
    for pieces in claims:
        others = [piece for earlier in kept for piece in earlier]
        kept.append(() if overlap(pieces, others) else pieces)
    return kept
