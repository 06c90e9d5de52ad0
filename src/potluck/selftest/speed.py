"""Checks of speed: an all-reduce by each backend, and Potluck's steps against those of stock PyTorch."""

import statistics

from potluck.selftest.crews import Crew
from potluck.selftest.orders import BatchChosen, ChooseBatch, Failed, StepsTimed, Sweep, Swept, TimeSteps, Unavailable
from potluck.selftest.rows import Row
from potluck.selftest.training import CheckFailedError, SmallRuns, free_port

RATIO_LIMIT = 1.05
"""A step of Potluck is at most this many times as long as one of stock PyTorch, which benchmarks/overhead.py holds."""
ADDED_S = 0.003
"""What Potluck adds to a step that is too short for the ratio: docs/decisions.md, The doctor."""
_MEGA = 1e6


def check_all_reduce(runs: SmallRuns, crew: Crew) -> Row:
    """Sums of several sizes between this crew's processes; Gloo sums in the CPU's memory."""
    port, size = free_port(), len(crew.devices)
    devices = crew.devices if crew.backend != "gloo" else ("cpu",) * size
    answers = runs.ask_all(
        [
            Sweep(rank=rank, num_workers=size, port=port, backend=crew.backend, device=device)
            for rank, device in enumerate(devices)
        ]
    )
    where = f"{size} workers, {crew.backend}"
    for rank, answer in enumerate(answers):
        if isinstance(answer, Failed):
            raise CheckFailedError(f"worker {rank} on {devices[rank]}: {answer.error}", answer.fix)
    found = [answer for answer in answers if isinstance(answer, Swept)]
    wrong = [f"worker {rank}: {one.wrong}" for rank, one in enumerate(found) if not one.is_sum_right]
    seconds = found[0].seconds
    largest = max(seconds)
    rate = largest / seconds[largest]
    return Row(
        check="all-reduce",
        where=where,
        result="failed" if wrong else "ok",
        number=f"{rate / _MEGA:,.0f} MB/s with {largest / _MEGA:.1f} MB, {1e3 * min(seconds.values()):.2f} ms at least",
        limit="right sum",
        figures={f"{size}_bytes_s": taken for size, taken in seconds.items()} | {"bytes_per_s": rate},
        why="; ".join(wrong),
    )


def check_plain_loop(runs: SmallRuns, device: str, seconds: float) -> Row:
    """One process on one device, against a loop without Potluck."""
    variables = runs.variables(0, 1)
    batch = _choose_batch(runs, device, variables)
    order = TimeSteps(
        run=runs.new_run(), device=device, seconds=seconds, batch=batch, machine=runs.machine, variables=variables
    )
    return _judge("plain-loop", device, runs.ask(order))


def check_bare_ddp(runs: SmallRuns, crew: Crew, seconds: float) -> Row:
    """Several workers, against DistributedDataParallel with the same backend."""
    size = len(crew.devices)
    with runs.group(size) as variables:
        batch = min(_choose_batch(runs, device, variables[0]) for device in dict.fromkeys(crew.devices))
        run, port = runs.new_run(), free_port()
        answers = runs.ask_all(
            [
                TimeSteps(
                    run=run,
                    device=device,
                    seconds=seconds,
                    batch=batch,
                    rank=rank,
                    num_workers=size,
                    port=port,
                    backend=crew.backend,
                    machine=runs.machine,
                    variables=variables[rank],
                )
                for rank, device in enumerate(crew.devices)
            ]
        )
    failed = next((answer for answer in answers if not isinstance(answer, StepsTimed)), answers[0])
    return _judge("bare-ddp", crew.name, failed)


def _choose_batch(runs: SmallRuns, device: str, variables: dict[str, str]) -> int:
    chosen = runs.ask(ChooseBatch(device=device, variables=variables))
    if isinstance(chosen, BatchChosen):
        return chosen.batch
    raise CheckFailedError(
        f"{device}: {chosen.error}" if isinstance(chosen, Failed) else f"{device}: an answer that was not asked for"
    )


def _judge(check: str, where: str, answer: object) -> Row:
    match answer:
        case Failed(error=error, fix=fix):
            raise CheckFailedError(error, fix)
        case Unavailable(why=why):
            return Row(check=check, where=where, result="left out", why=why)
        case StepsTimed():
            return judge_ratio(check, where, answer)
    raise CheckFailedError("an answer that was not asked for")


def judge_ratio(check: str, where: str, timed: StepsTimed) -> Row:
    """Compare step by step. The check fails only if three of four pairs are above the limit: the rest is noise."""
    stock, potluck = statistics.median(timed.stock_s), statistics.median(timed.potluck_s)
    pairs = [mine / theirs for mine, theirs in zip(timed.potluck_s, timed.stock_s, strict=True)]
    low, ratio, high = statistics.quantiles(pairs, n=4)
    limit = max(RATIO_LIMIT, 1 + ADDED_S / stock)
    is_slow = low > limit
    return Row(
        check=check,
        where=where,
        result="failed" if is_slow else "ok",
        number=f"{ratio:.3f}x of {1e3 * stock:.1f} ms (half of {len(pairs)} pairs {low:.3f} to {high:.3f})",
        limit=f"{limit:.2f}x",
        figures={
            "ratio": ratio,
            "low": low,
            "high": high,
            "limit": limit,
            "potluck_step_s": potluck,
            "stock_step_s": stock,
            "num_pairs": len(pairs),
            "batch": timed.batch,
        },
        why=f"three of four steps are more than {low:.2f} times as long as stock PyTorch's; {limit:.2f} is promised"
        if is_slow
        else "",
    )
