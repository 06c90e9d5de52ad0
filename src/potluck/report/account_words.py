"""An account in words: the throughput of all machines, against the sum of solo speeds and the plans' prediction."""

from potluck.core.words import counted, listed
from potluck.report.account import CAUSES, Account
from potluck.report.words import percent

EXPLAINED = {
    "commit": "commit vote: all workers agree that the step counts",
    "retry": "repeated steps: a machine was lost during a step, and the others did that step again",
}
"""Explanations of those causes whose names alone are not clear."""
_ALWAYS_HERE = 0.99


def figures(account: Account) -> dict[str, str]:
    """The main figures of an account by name, each in words that say what the figure is measured against."""
    told = {"together": f"{account.samples_per_s:,.1f} samples/s in these steps"}
    if account.efficiency is not None:
        machines = list(account.solo_samples_per_s)
        total = sum(account.solo_samples_per_s.values())
        whose = f"the sum of {listed(machines)}" if len(machines) <= 4 else f"the sum of {len(machines)} machines"
        present = (
            "" if total > _ALWAYS_HERE * sum(account.speed_alone.values()) else ", for the time that each was here"
        )
        told["alone"] = f"{total:,.1f} samples/s, {whose} when each trains alone{present}"
        told["efficiency"] = f"{percent(account.efficiency)} of that sum"
    if (predicted := prediction(account)) is not None:
        told["predicted"] = predicted
    return told


def prediction(account: Account) -> str | None:
    """The throughput that the plans predicted, and how far off they were; None if it is not known."""
    if account.predicted_samples_per_s is None or account.prediction_error is None:
        return None
    side = "too high" if account.prediction_error > 0 else "too low"
    off = percent(abs(account.prediction_error))
    return f"{account.predicted_samples_per_s:,.1f} samples/s by the plans, {off} {side}"


def basis(account: Account, num_steps: int = 0) -> str:
    """How many steps the account covers, of the `num_steps` that the run has committed."""
    steps = counted(account.num_steps, "step")
    if num_steps > account.num_steps:
        steps = f"{account.num_steps:,} of {counted(num_steps, 'step')}"
    return f"{steps}: those with a plan and the timings of every worker"


def explanations(account: Account) -> list[str]:
    """The lines of EXPLAINED for the causes that occur among the losses."""
    causes = {loss.cause for loss in account.losses}
    return [line for cause, line in EXPLAINED.items() if cause in causes]


def time_line(account: Account) -> str:
    """Where a one-machine run's time went, the largest part first: 93 % computing, 5 % waiting for training data."""
    (parts,) = list(account.step_parts_s.values())[:1] or [{}]
    words = part_names()
    total = sum(parts.values()) or 1.0
    largest = sorted(((seconds / total, words.get(part, part)) for part, seconds in parts.items()), reverse=True)
    return ", ".join(f"{percent(part)} {name}" for part, name in largest if part >= 0.001)


def part_names() -> dict[str, str]:
    """Every part of a step, with its name in words."""
    return {"compute": "computing", "straggler_wait": "waiting for slower workers"} | {
        cause: text for cause, text in CAUSES.items() if cause != "compute"
    }


def closing_lines(account: Account) -> list[str]:
    """The lines below the table of losses: why machines were benched."""
    return list(account.benched.values())
