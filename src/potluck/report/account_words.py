"""An account in sentences: how fast the machines were together, against what each does alone and what was planned."""

from potluck.core.words import counted, listed
from potluck.report.account import CAUSES, Account
from potluck.report.words import percent

EXPLAINED = {
    "commit": "commit vote: all workers agree that the step counts",
    "retry": "repeated steps: a machine was lost during a step, and the others did that step again",
}
"""What a cause means where its name alone does not say it."""
_ALWAYS_HERE = 0.99


def figures(account: Account) -> dict[str, str]:
    """The figures of an account, each with the words that say what it is measured against."""
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
    """What the plans said, and how far off that was."""
    if account.predicted_samples_per_s is None or account.prediction_error is None:
        return None
    side = "too high" if account.prediction_error > 0 else "too low"
    off = percent(abs(account.prediction_error))
    return f"{account.predicted_samples_per_s:,.1f} samples/s by the plans, {off} {side}"


def basis(account: Account, num_steps: int = 0) -> str:
    """Which steps the account is made of: those of which every worker's timing is known."""
    steps = counted(account.num_steps, "step")
    if num_steps > account.num_steps:
        steps = f"{account.num_steps:,} of {counted(num_steps, 'step')}"
    return f"{steps}: those with a plan and the timings of every worker"


def explanations(account: Account) -> list[str]:
    """A line for each cause among the losses that needs one."""
    causes = {loss.cause for loss in account.losses}
    return [line for cause, line in EXPLAINED.items() if cause in causes]


def time_line(account: Account) -> str:
    """Where the time of a worker alone went, the largest part first: 93 % computing, 5 % waiting for data."""
    (parts,) = list(account.step_parts_s.values())[:1] or [{}]
    words = part_names()
    total = sum(parts.values()) or 1.0
    largest = sorted(((seconds / total, words.get(part, part)) for part, seconds in parts.items()), reverse=True)
    return ", ".join(f"{percent(part)} {name}" for part, name in largest if part >= 0.001)


def part_names() -> dict[str, str]:
    """Every part of a step, in words."""
    return {"compute": "computing", "straggler_wait": "waiting for slower workers"} | {
        cause: text for cause, text in CAUSES.items() if cause != "compute"
    }


def closing_lines(account: Account) -> list[str]:
    """What a person should do or know after the run: why machines were benched."""
    return list(account.benched.values())
