"""Finds cards that had little to do in a run, with the cause by the run's account, and what to change."""

from typing import Final

from potluck.core.words import listed
from potluck.report.account import Account
from potluck.report.account_words import part_names
from potluck.report.cards import CardRow
from potluck.report.words import percent

IDLE: Final = 0.5
"""A card that computes less than this fraction of the time is idle."""
_LEAST_S: Final = 15.0  # of measurements: the first steps of a run say little
_MUCH: Final = 0.1
"""A part of the step that takes at least this fraction of it explains why the card waits."""
_ADVICE: Final = {
    "data_wait": "let more processes read ahead: --loader-workers 4, in a script run.loader(..., num_workers=4)",
    "straggler_wait": "--load-balance-policy dynamic gives slower machines fewer samples, --machines leaves some out",
    "exposed_exchange": "use a larger --global-batch, so that a step computes longer for the same gradients, or a "
    "faster network: potluck doctor --cluster measures it, potluck plan says which machines pay",
    "commit": "use a larger --global-batch: every step has one vote, however large the step is",
    "rest": "do less in the script between steps, such as printing, saving and copying results to the CPU",
    "retry": "potluck report lists the machines that were lost during steps",
    "compute": "the operators are too small for the card: use a larger --global-batch or --micro-batch, or "
    "--mixed-precision bf16; --enable-profiling shows which operators take the time",
}


def idle_cards(rows: tuple[CardRow, ...], account: Account | None) -> tuple[str, ...]:
    """A line for each machine with an idle card: how busy it was, why by the account, and what to change."""
    idle: dict[str, list[CardRow]] = {}
    for row in rows:
        if row.busy is not None and row.busy < IDLE and row.measured_s >= _LEAST_S:
            idle.setdefault(row.machine, []).append(row)
    return tuple(_line(machine, found, account) for machine, found in idle.items())


def _line(machine: str, rows: list[CardRow], account: Account | None) -> str:
    cards = listed([f"{row.card} ({row.busy_text})" for row in rows])
    head = f"{machine}'s {cards} computed less than half of the time"
    parts = {} if account is None else account.step_parts_s.get(machine, {})
    total = sum(parts.values())
    if not total:
        return f"{head}; why is not known, since no step has the timings of every worker"
    cause, seconds = max(((part, seconds) for part, seconds in parts.items() if part != "compute"), key=lambda p: p[1])
    if seconds < _MUCH * total:
        return (
            f"{head}, though {percent(parts.get('compute', 0.0) / total)} of a step is computing: {_ADVICE['compute']}"
        )
    whom = _waited_for(machine, account) if cause == "straggler_wait" else ""
    return f"{head}: {percent(seconds / total)} of a step is {part_names()[cause]}{whom}; {_ADVICE[cause]}"


def _waited_for(machine: str, account: Account | None) -> str:
    """The machine for which the others waited longest."""
    losses = [] if account is None else [loss for loss in account.losses if loss.machine != machine and loss.waited_s]
    return f", mostly for {max(losses, key=lambda loss: loss.waited_s).machine}" if losses else ""
