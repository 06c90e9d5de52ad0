"""Checks that several workers come to the parameters of one process: any devices, any shares, after any trouble."""

import math
import time
from collections.abc import Iterable, Sequence

from potluck.events.log import read_records
from potluck.events.types import StepCommitted
from potluck.machine.parity import FLOAT32_LIMIT, FLOAT64_LIMIT, MIXED_LIMIT, largest_difference
from potluck.selftest.crews import Crew, uneven_shares
from potluck.selftest.orders import Train, Trained
from potluck.selftest.problem import GLOBAL_BATCH, STEPS_PER_EPOCH
from potluck.selftest.processes import ORDER_S, WorkerProcess, gather
from potluck.selftest.rows import Row
from potluck.selftest.training import CheckFailedError, SmallRuns, crew_orders, trained

LIMITS = {"fp64": FLOAT64_LIMIT, "fp32": FLOAT32_LIMIT, "bf16": MIXED_LIMIT, "fp16": MIXED_LIMIT}
"""How far the parameters of several workers may be from those of one process, as a fraction of the largest."""

_SCRATCH_BYTES = 1 << 27  # 16 samples at once ask for 512 GiB, one for 128 MiB
_KILL_AT_STEP = 5
HEALING_EPOCHS = 12
_RESTART_S = 1.2  # an agent starts a crashed worker again after a second, and a start takes a moment
_LOOK_S = 0.02


def check_parity(runs: SmallRuns, crew: Crew, precision: str) -> Row:
    """Equal shares."""
    return _compare(runs, crew, precision, check="parity", policy="static")


def check_together(runs: SmallRuns, crew: Crew, precision: str) -> Row:
    """CPU and accelerators in one run, with the shares that Potluck chooses."""
    return _compare(runs, crew, precision, check="together", policy="dynamic")


def check_uneven(runs: SmallRuns, crew: Crew, precision: str) -> Row:
    """Shares of which one is much larger than the others."""
    wanted = uneven_shares(len(crew.devices), GLOBAL_BATCH)
    with runs.group(len(crew.devices)) as variables:
        orders = crew_orders(runs, crew, variables, precision, shares=wanted)
        found = trained(runs.ask_all(orders), crew.devices)
    taken = tuple(one.shares[1] for one in found)
    if taken != wanted:
        raise CheckFailedError(f"shares of {_sum(wanted)} were asked for, and the workers took {_sum(taken)}")
    return _judge(runs, crew, precision, found, check="uneven", more=f"shares {_sum(taken)}")


def check_memory(runs: SmallRuns, device: str) -> Row:
    """A batch that does not fit is computed in micro-batches that do, with the same result."""
    order = Train(
        run=runs.new_run(),
        device=device,
        precision="fp32",
        machine=runs.machine,
        scratch_bytes=_SCRATCH_BYTES,
        variables=runs.variables(0, 1),
    )
    (found,) = trained([runs.ask(order)], [device])
    if not found.did_not_fit:
        needed = _SCRATCH_BYTES * GLOBAL_BATCH**3 / 2**30
        raise CheckFailedError(
            f"{GLOBAL_BATCH} samples that need {needed:,.0f} GiB raised no out-of-memory error on {device}"
        )
    more = f"{found.did_not_fit[0]} samples did not fit, {found.micro_batch} at once do"
    apart = largest_difference(runs.alone(device, "fp32").parameters, found.parameters)
    return judge_parameters(
        "memory", device, "fp32", {"one worker": apart}, more=more, figures={"fits": found.micro_batch}
    )


def check_healing(runs: SmallRuns, crew: Crew) -> Row:
    """The last worker is killed; a new process takes its place, is healed, and nothing of the result is lost."""
    size = len(crew.devices)
    with runs.group(size) as variables:
        orders = crew_orders(runs, crew, variables, "fp32", epochs=HEALING_EPOCHS, pause_s=0.01, wait_s=1.0)
        *others, victim, spare = runs.pool.take(size + 1)
        for process, order in zip([*others, victim], orders, strict=True):
            process.order(order)
        _wait_for_step(runs, orders[-1].run, size - 1, _KILL_AT_STEP, [*others, victim])
        victim.kill()
        killed_at = time.monotonic()
        time.sleep(_RESTART_S)
        spare.order(orders[-1])
        seconds = _wait_for_commit(runs, orders[-1].run, size - 1, killed_at, spare)
        answers = gather([*others, spare])
    found = trained(answers, crew.devices)
    total = STEPS_PER_EPOCH * HEALING_EPOCHS
    missed = total - len(found[-1].shares)
    more = f"back after {seconds:.1f} s"
    figures = {"healed_s": seconds, "steps_since_start": float(total - missed)}
    return _judge(runs, crew, "fp32", found, check="healing", more=more, epochs=HEALING_EPOCHS, figures=figures)


def _wait_for_step(runs: SmallRuns, run: str, number: int, step: int, processes: Sequence[WorkerProcess]) -> None:
    deadline = time.monotonic() + ORDER_S
    while _last_step(runs, run, number) < step:
        if time.monotonic() > deadline or not all(process.is_alive for process in processes):
            raise CheckFailedError(f"the workers did not reach step {step}, in which one of them is killed")
        time.sleep(_LOOK_S)


def _wait_for_commit(runs: SmallRuns, run: str, number: int, since: float, process: WorkerProcess) -> float:
    """Seconds from `since` until the worker's new process has committed a step."""
    before = len(_steps(runs, run, number))
    while len(_steps(runs, run, number)) <= before:
        if time.monotonic() - since > ORDER_S or not process.is_alive:
            raise CheckFailedError(f"worker {number} was killed, started again, and not healed")
        time.sleep(_LOOK_S)
    return time.monotonic() - since


def _steps(runs: SmallRuns, run: str, number: int) -> list[int]:
    return [
        record.event.step
        for file in runs.event_files(run, number)
        for record in read_records(file)
        if isinstance(record.event, StepCommitted)
    ]


def _last_step(runs: SmallRuns, run: str, number: int) -> int:
    return max(_steps(runs, run, number), default=0)


def _compare(runs: SmallRuns, crew: Crew, precision: str, *, check: str, policy: str) -> Row:
    with runs.group(len(crew.devices)) as variables:
        found = trained(runs.ask_all(crew_orders(runs, crew, variables, precision, policy=policy)), crew.devices)
    more = f"shares {_sum([one.shares[-2] for one in found])}" if crew.is_mixed else ""
    return _judge(runs, crew, precision, found, check=check, more=more)


def _judge(
    runs: SmallRuns,
    crew: Crew,
    precision: str,
    found: Sequence[Trained],
    *,
    check: str,
    more: str = "",
    epochs: int = 2,
    figures: dict[str, float] | None = None,
) -> Row:
    """Each worker's parameters against those of one process on the crew's first device."""
    wanted = runs.alone(crew.devices[0], precision, epochs).parameters
    apart = {
        f"worker {number} on {device}": largest_difference(wanted, one.parameters)
        for number, (device, one) in enumerate(zip(crew.devices, found, strict=True))
    }
    return judge_parameters(check, crew.name, precision, apart, more=more, figures=figures, first=crew.devices[0])


def judge_parameters(
    check: str,
    where: str,
    precision: str,
    apart: dict[str, float],
    *,
    more: str = "",
    figures: dict[str, float] | None = None,
    first: str = "",
) -> Row:
    """A row for parameters that are `apart` from those of one process, by worker."""
    limit = LIMITS[precision]
    # Not `value > limit`, which NaN would pass.
    wrong = {worker: value for worker, value in apart.items() if not value <= limit}
    largest = _largest(apart.values())
    number = f"{largest:.1e} apart" if largest else "equal in every bit"
    return Row(
        check=check,
        where=f"{where}, {precision}",
        result="failed" if wrong else "ok",
        number=f"{number}, {more}" if more else number,
        limit=f"{limit:.0e}",
        figures={"apart": largest, "limit": limit, **(figures or {})},
        why=_told(wrong, first or where, limit) if wrong else "",
    )


def _told(wrong: dict[str, float], one_process: str, limit: float) -> str:
    """The workers whose parameters are too far away, the farthest first; NaN is farther than any number."""
    ordered = sorted(wrong.items(), key=lambda item: (math.isnan(item[1]), item[1]), reverse=True)
    by = ", ".join(f"{value:.1e} ({worker})" for worker, value in ordered)
    return f"parameters are away from those of one process on {one_process} by {by}; at most {limit:.0e} is promised"


def _largest(values: Iterable[float]) -> float:
    values = list(values)
    return next(filter(math.isnan, values), max(values))  # max alone would pass over NaN


def _sum(shares: Sequence[int]) -> str:
    return " + ".join(map(str, shares))
