"""All checks of the self-test: which ones apply to a machine's devices, in the order in which they are done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from potluck.core.errors import SettingsError, did_you_mean
from potluck.selftest.agreement import check_healing, check_memory, check_parity, check_together, check_uneven
from potluck.selftest.crews import CPU, Crew, crews_of
from potluck.selftest.orders import Described
from potluck.selftest.rows import Row
from potluck.selftest.speed import check_all_reduce, check_bare_ddp, check_plain_loop
from potluck.selftest.training import SmallRuns

CHECKS = {
    "parity": "Several workers give the parameters that one process gives, in each number format.",
    "uneven": "Workers that take very different shares of a batch give the parameters that one process gives.",
    "together": "The CPU and the accelerators in one run give the parameters that one process gives.",
    "memory": "A batch that does not fit into a device's memory is computed in parts, with the same result.",
    "healing": "A worker is killed, started again and healed, and the result is the same.",
    "all-reduce": "Sums over workers are right, and how fast they are, by each backend.",
    "plain-loop": "A step of one process takes as long as in a plain PyTorch loop.",
    "bare-ddp": "A step of several workers takes as long as with PyTorch's own DistributedDataParallel.",
}
TIMED = frozenset({"plain-loop", "bare-ddp"})
_SECONDS = 8.0  # of each comparison with stock PyTorch

_AGAIN = "type it again: potluck selftest --check {check}; if it fails again, send us the JSON file with an issue"
_FIXES = {
    "all-reduce": "potluck doctor",
    "plain-loop": "close other programs, then: potluck selftest --check plain-loop",
    "bare-ddp": "close other programs, then: potluck selftest --check bare-ddp",
}


@dataclass(frozen=True, slots=True)
class PlannedCheck:
    """One row of the table that is still to be filled."""

    check: str
    where: str
    do: Callable[[SmallRuns], Row]
    reason: str = ""
    """Why the check is left out on this machine."""


def check_known(names: Sequence[str]) -> None:
    """Raise SettingsError for a name that is no check's."""
    for name in names:
        if name not in CHECKS:
            raise SettingsError(f"there is no check {name!r} in the self-test", fix=did_you_mean(name, CHECKS))


def plan_checks(seen: Described, *, only: Sequence[str] = (), is_quick: bool = False) -> list[PlannedCheck]:
    """The checks for a machine with these devices and backends."""
    crews = crews_of(seen.devices, seen.backends)
    alike = [crew for crew in crews if not crew.is_mixed]
    planned: list[PlannedCheck] = []

    def add(check: str, where: str, do: Callable[[SmallRuns], Row]) -> None:
        planned.append(PlannedCheck(check, where, do))

    for crew in alike:
        for precision in _precisions(crew, seen, is_quick=is_quick):
            add("parity", f"{crew.name}, {precision}", partial(check_parity, crew=crew, precision=precision))
    for crew in alike:
        add("uneven", f"{crew.name}, fp32", partial(check_uneven, crew=crew, precision="fp32"))
    for crew in (crew for crew in crews if crew.is_mixed):
        for precision in ("fp32",) if is_quick else ("fp32", "bf16", "fp16"):
            add("together", f"{crew.name}, {precision}", partial(check_together, crew=crew, precision=precision))
        add("uneven", f"{crew.name}, fp32", partial(check_uneven, crew=crew, precision="fp32"))
    for device in (CPU, *seen.devices):
        add("memory", f"{device}, fp32", partial(check_memory, device=device))
    for crew in crews:
        add("healing", f"{crew.name}, fp32", partial(check_healing, crew=crew))
    for crew in _by_backend(alike):
        add("all-reduce", f"{len(crew.devices)} workers, {crew.backend}", partial(check_all_reduce, crew=crew))
    for device in (CPU, *seen.devices[:1]):
        add("plain-loop", device, partial(check_plain_loop, device=device, seconds=_SECONDS))
    for crew in alike:
        add("bare-ddp", crew.name, partial(check_bare_ddp, crew=crew, seconds=_SECONDS))
    if not seen.devices:
        planned.append(PlannedCheck("together", "cpu", _nothing, "torch sees no accelerator here"))
    return [one for one in planned if (one.check in only if only else not (is_quick and one.check in TIMED))]


def fix_for(check: str) -> str:
    """What to type after a failed check."""
    return _FIXES.get(check, _AGAIN.format(check=check))


def _precisions(crew: Crew, seen: Described, *, is_quick: bool) -> tuple[str, ...]:
    if is_quick:
        return ("fp32",)
    has_float64 = seen.has_float64 or crew.devices[0] == CPU
    return (*(("fp64",) if has_float64 else ()), "fp32", "bf16", "fp16")


def _by_backend(crews: Sequence[Crew]) -> list[Crew]:
    """The first crew of each backend: Gloo sums in the CPU's memory, whatever the devices."""
    return list({crew.backend: crew for crew in reversed(crews)}.values())[::-1]


def _nothing(_: SmallRuns) -> Row:
    raise AssertionError("a check that is left out is not done")
