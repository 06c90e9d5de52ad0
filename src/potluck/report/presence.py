"""Which steps of a run each worker committed, and when no process trained the run: pure functions on step ranges.

A resumed run goes back to a checkpoint: steps that were committed after that checkpoint are undone and trained again.
The checkpoint that one worker loads does not show which steps: peers heal a worker whose checkpoint is older. So only
committed steps count here: when a step is committed again, its new commit replaces the earlier commit and undoes all
steps that followed the earlier one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

Span: TypeAlias = tuple[int, int]
"""The first and the last of consecutive steps."""
Period: TypeAlias = tuple[float, float]

LEAST_PAUSE_S: Final = 1.0
_SAME_COMMIT_S: Final = 1.0  # commits of one step on several workers lie closer together, clock errors included


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive steps that one process of a worker committed; empty if last_step < first_step."""

    first_step: int
    last_step: int
    since: float
    until: float


def lasting(stretches: Mapping[str, Sequence[Stretch]]) -> dict[str, list[Stretch]]:
    """The stretches without steps that were undone; their times stay as they are. All times are on one clock."""
    kept = {name: list(own) for name, own in stretches.items()}
    starts = sorted((piece.since, piece.first_step) for own in kept.values() for piece in own)
    ends = sorted((piece.until, piece.last_step) for own in kept.values() for piece in own)
    num_ended = farthest = 0
    for since, first_step in starts:
        while num_ended < len(ends) and ends[num_ended][0] < since - _SAME_COMMIT_S:
            farthest = max(farthest, ends[num_ended][1])
            num_ended += 1
        if farthest >= first_step:
            kept = {name: [_undo(piece, first_step, since) for piece in own] for name, own in kept.items()}
            farthest = first_step - 1
    return kept


def _undo(piece: Stretch, first_step: int, again_at: float) -> Stretch:
    """The stretch without its steps from `first_step` on, if it ended before that step was committed again."""
    if piece.until >= again_at - _SAME_COMMIT_S or piece.last_step < first_step:
        return piece
    return replace(piece, last_step=first_step - 1)


def steps_of(stretches: Iterable[Stretch]) -> list[Span]:
    """All steps of the stretches, as ordered spans that neither overlap nor touch."""
    spans: list[Span] = []
    for first, last in sorted((piece.first_step, piece.last_step) for piece in stretches):
        if last < first:
            continue
        if spans and first <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], max(spans[-1][1], last))
        else:
            spans.append((first, last))
    return spans


def without(spans: Sequence[Span], taken: Sequence[Span]) -> list[Span]:
    """The steps of `spans` that are not in `taken`; both are in order."""
    left: list[Span] = []
    index = 0
    for first, last in spans:
        while index < len(taken) and taken[index][1] < first:
            index += 1
        at, begin = index, first
        while begin <= last and at < len(taken) and taken[at][0] <= last:
            if taken[at][0] > begin:
                left.append((begin, taken[at][0] - 1))
            begin = taken[at][1] + 1
            at += 1
        if begin <= last:
            left.append((begin, last))
    return left


def num_steps(spans: Iterable[Span]) -> int:
    """How many steps there are in spans that do not overlap."""
    return sum(last - first + 1 for first, last in spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A time in which no process trained the run, and the step from which the run went on afterwards."""

    begin: float
    end: float
    resumed_after: int | None
    """The last step that was not undone; None until a step is committed after the pause."""
    num_undone: int
    """Steps that were committed before the pause and had to be done again."""


def find_pauses(sessions: Iterable[Period], stretches: Iterable[Stretch]) -> list[Pause]:
    """The pauses of a run, from the lifetimes of its processes and the steps they committed, on one clock."""
    pieces = list(stretches)
    found = []
    for begin, end in pauses(sessions):
        before = max((piece.last_step for piece in pieces if piece.until <= begin), default=0)
        later = [(piece.since, piece.first_step) for piece in pieces if piece.since >= end]
        after = min(later)[1] - 1 if later else None
        undone = 0 if after is None else max(0, before - after)
        found.append(Pause(begin=begin, end=end, resumed_after=after, num_undone=undone))
    return found


def pauses(sessions: Iterable[Period], least_s: float = LEAST_PAUSE_S) -> list[Period]:
    """Periods of at least `least_s` in which no process of the run was alive."""
    found: list[Period] = []
    until: float | None = None
    for begin, end in sorted(sessions):
        if until is not None and begin - until >= least_s:
            found.append((until, begin))
        until = end if until is None else max(until, end)
    return found


def cut(period: Period, taken: Sequence[Period]) -> list[Period]:
    """The parts of a period that are in none of the `taken` periods, which are in order."""
    begin, end = period
    left: list[Period] = []
    for first, last in taken:
        if last <= begin or first >= end:
            continue
        if first > begin:
            left.append((begin, first))
        begin = last
    if begin < end:
        left.append((begin, end))
    return left
