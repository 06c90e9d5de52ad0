"""The costliest operators in a trace of torch.profiler: a pure function of the trace's JSON."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from potluck.events.types import OperatorCost

MOST_OPERATORS = 12
_LONGEST_NAME = 120
_OF_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


class _Slice(msgspec.Struct, frozen=True, gc=False):
    """One entry of a trace: something that took time on a thread or on a device; times in microseconds."""

    name: str = ""
    cat: str = ""
    ph: str = ""
    tid: Any = 0
    ts: float = 0.0
    dur: float = 0.0


class _Trace(msgspec.Struct, frozen=True):
    slices: list[_Slice] = msgspec.field(name="traceEvents", default_factory=list)


def operator_costs(trace: bytes, num_steps: int) -> list[OperatorCost]:
    """Operators by their own time in a step, without the operators that they call; the costliest first.

    `trace` is the JSON that torch.profiler exports. Kernels and copies of an accelerator are listed beside the
    operators of the CPU: they run at the same time.
    """
    slices = msgspec.json.decode(trace, type=_Trace).slices
    by_thread: dict[Any, list[_Slice]] = defaultdict(list)
    own_us: dict[tuple[str, bool], float] = defaultdict(float)
    calls: dict[tuple[str, bool], int] = defaultdict(int)
    for one in slices:
        if one.ph == "X" and one.cat == "cpu_op":
            by_thread[one.tid].append(one)
        elif one.ph == "X" and one.cat in _OF_DEVICE:
            own_us[one.name, True] += one.dur
            calls[one.name, True] += 1
    for found in by_thread.values():
        for name, microseconds in _own_times(found):
            own_us[name, False] += microseconds
            calls[name, False] += 1
    costliest = sorted(own_us, key=lambda key: -own_us[key])[:MOST_OPERATORS]
    return [
        OperatorCost(
            name=name[:_LONGEST_NAME],
            on_device=on_device,
            calls=round(calls[name, on_device] / num_steps, 2),
            seconds=own_us[name, on_device] / num_steps / 1e6,
        )
        for name, on_device in costliest
    ]


def _own_times(slices: list[_Slice]) -> Iterable[tuple[str, float]]:
    """(operator, microseconds without the operators inside it) for each slice of one thread."""
    open_slices: list[tuple[_Slice, list[float]]] = []
    for one in sorted(slices, key=lambda found: (found.ts, -found.dur)):
        while open_slices and open_slices[-1][0].ts + open_slices[-1][0].dur <= one.ts:
            yield _closed(open_slices.pop())
        if open_slices:
            open_slices[-1][1][0] += one.dur
        open_slices.append((one, [0.0]))
    for left in reversed(open_slices):
        yield _closed(left)


def _closed(found: tuple[_Slice, list[float]]) -> tuple[str, float]:
    one, (inside,) = found
    return one.name, max(0.0, one.dur - inside)
