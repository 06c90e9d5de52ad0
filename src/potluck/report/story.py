"""A run told from its folder: what was trained on what, what came of it, what happened, and how to repeat it."""

from dataclasses import dataclass
from typing import Any

from potluck.report.account import Account
from potluck.report.history import Happening
from potluck.report.timeline import COLUMNS
from potluck.report.view import RunView
from potluck.report.words import duration, number, percent, scores_text

FAULTS = ("left", "back", "restarted", "resumed", "benched", "unbenched")
_OWN = COLUMNS.index("own_samples")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRow:
    """One machine of a run."""

    machine: str
    workers: int
    device: str
    versions: str
    samples: int
    part: float
    """Of the run's samples."""
    solo_samples_per_s: float | None
    steps_away: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One plan."""

    after_s: float
    step: int
    shares: str
    samples_per_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything that a report says, as plain data."""

    name: str
    status: str
    message: str
    what: dict[str, str]
    result: dict[str, str]
    machines: tuple[MachineRow, ...]
    plans: tuple[PlanRow, ...]
    faults: tuple[Happening, ...]
    fault_s: float
    """Seconds that machines coming and going cost those who stayed."""
    notices: tuple[Happening, ...]
    account: Account | None
    began_at: float
    repeat: tuple[str, ...]


def tell(view: RunView) -> Story:
    """The story so far."""
    account = view.account()
    happenings = view.happenings()
    return Story(
        name=view.folder.name,
        status=view.status,
        message=view.state.message,
        what=_what(view),
        result=_result(view, account),
        machines=_machines(view, account),
        plans=tuple(
            PlanRow(
                after_s=at - view.began_at,
                step=plan.step,
                shares=", ".join(f"{plan.machines.get(name, name)} {share}" for name, share in plan.shares.items()),
                samples_per_s=plan.samples_per_s,
                reason=plan.reason,
            )
            for at, plan in view.plans
            if plan.reason
        ),
        faults=tuple(line for line in happenings if line.kind in FAULTS),
        fault_s=view.regroup_s,
        notices=tuple(line for line in happenings if line.kind == "notice"),
        account=account,
        began_at=view.began_at,
        repeat=_repeat(view),
    )


def _what(view: RunView) -> dict[str, str]:
    state, settings = view.state, view.settings
    words: dict[str, str] = {
        key: str(settings[key]) for key in ("model", "model_size", "dataset", "script") if key in settings
    }
    if state.num_parameters:
        words["parameters"] = f"{state.num_parameters:,}"
    if state.global_batch:
        words["data"] = f"{state.num_samples:,} samples, global batch {state.global_batch}"
    if state.mixed_precision != "no":
        words["precision"] = state.mixed_precision
    words["on"] = ", ".join(view.machines)
    return {key.replace("_", " "): text for key, text in words.items() if text}


def _result(view: RunView, account: Account | None) -> dict[str, str]:
    state = view.state
    result = {"steps": f"{state.step} of {state.last_step}" if state.last_step else str(state.step)}
    if state.training_s:
        took = duration(view.updated_at - view.began_at)
        result["time"] = f"{took}, of which {duration(state.training_s)} in steps"
        result["throughput"] = f"{view.samples_per_s:,.1f} samples/s"
    if account is not None and account.efficiency is not None:
        total = sum(account.solo_samples_per_s.values())
        result["efficiency"] = f"{percent(account.efficiency)} of the {total:,.1f} samples/s that the machines do alone"
    if account is not None and account.predicted_samples_per_s is not None and account.prediction_error is not None:
        side = "above" if account.prediction_error > 0 else "below"
        off = percent(abs(account.prediction_error))
        result["predicted"] = f"{account.predicted_samples_per_s:,.1f} samples/s, {off} {side} measured"
    if state.epochs:
        result["loss"] = f"{number(state.epochs[-1].loss)} over epoch {state.epochs[-1].epoch + 1}"
    elif state.loss is not None:
        result["loss"] = f"{number(state.loss)} at step {state.step}"
    if state.scores:
        result["held out"] = scores_text(state.scores).replace("held-out ", "")
    return result


def _machines(view: RunView, account: Account | None) -> tuple[MachineRow, ...]:
    names, _, _, sums = view.series()
    samples = {name: int(sums[index, :, _OWN].sum()) for index, name in enumerate(names)}
    total = sum(samples.values())
    absences = view.absences()
    rows = []
    for machine in view.machines:
        workers = [worker for worker in view.workers.values() if worker.machine == machine]
        own = sum(samples.get(worker.name, 0) for worker in workers)
        away = [gap.last_step - gap.first_step + 1 for worker in workers for gap in absences[worker.name]]
        versions = workers[0].state.versions
        rows.append(
            MachineRow(
                machine=machine,
                workers=len(workers),
                device=", ".join(dict.fromkeys(worker.state.device for worker in workers)),
                versions=", ".join(f"{name} {version}" for name, version in versions.items()),
                samples=own,
                part=own / total if total else 0.0,
                solo_samples_per_s=None if account is None else account.solo_samples_per_s.get(machine),
                steps_away=sum(away),
            )
        )
    return tuple(rows)


def _repeat(view: RunView) -> tuple[str, ...]:
    settings: dict[str, Any] = view.settings
    if "script" in settings:
        return (f"python {settings['script']}",)
    return (f"potluck train --config {view.folder.settings_file}",) if settings else ()
