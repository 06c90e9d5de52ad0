"""The content of a run's report: what was trained on which machines, results, faults, plans, and how to repeat it."""

from dataclasses import dataclass
from typing import Any

from potluck.core.cards import together
from potluck.core.run_folder import RunFolder
from potluck.core.shell_words import quote
from potluck.core.words import counted
from potluck.events.progress_lines import backend_text, held_back_text, variables_text
from potluck.report.account import Account
from potluck.report.account_words import figures
from potluck.report.cards import CardRow, card_rows, energy_of
from potluck.report.history import Happening
from potluck.report.idle_cards import idle_cards
from potluck.report.round_price import round_price_text
from potluck.report.timeline import COLUMNS
from potluck.report.view import RunView
from potluck.report.words import duration, losses_text, scores_text

OPEN_WITH = (
    "open a trace file in https://ui.perfetto.dev or chrome://tracing; the account leaves recorded steps out, since "
    "recording slows them down"
)
FAULTS = ("left", "back", "restarted", "resumed", "benched", "unbenched", "paused")
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
    """The machine's fraction of the run's samples, 0 to 1."""
    samples_per_s: float
    """The machine's throughput in this run."""
    solo_samples_per_s: float | None
    steps_away: int
    """Steps that the run committed without this machine."""
    steps_benched: int
    """How many of these steps the machine was benched for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """One kind of operator in a mean recorded step."""

    name: str
    on_device: bool
    calls: float
    seconds: float
    """Without the operators that it calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """The steps of one worker that torch.profiler has recorded."""

    worker: str
    place: str
    """Its card, or its device."""
    first_step: int
    last_step: int
    file: str
    """Where the trace is; empty if it was left out."""
    left_out: str
    operators: tuple[OperatorRow, ...]
    """The costliest of a mean step, first."""

    @property
    def text(self) -> str:
        where = f"no file, since {self.left_out}" if self.left_out else self.file
        return f"{self.worker} on {self.place}, steps {self.first_step} to {self.last_step}: {where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStory:
    """What the run's cards and operators did."""

    cards: tuple[CardRow, ...]
    findings: tuple[str, ...]
    """Cards that had little to do, why, and what to change."""
    traces: tuple[TraceRow, ...]


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
    devices: DeviceStory
    plans: tuple[PlanRow, ...]
    faults: tuple[Happening, ...]
    fault_s: float
    """Seconds that the other machines lost when machines joined or left."""
    notices: tuple[Happening, ...]
    account: Account | None
    began_at: float
    num_steps: int
    """Steps committed so far."""
    repeat: tuple[str, ...]


def tell(view: RunView) -> Story:
    """The content of a run's report so far."""
    account = view.account()
    happenings = view.happenings()
    cards = card_rows(view)
    return Story(
        name=view.folder.name,
        status=view.shown_status,
        message=view.state.message,
        what=_what(view),
        result=_result(view, account),
        machines=_machines(view, account),
        devices=DeviceStory(cards=cards, findings=idle_cards(cards, account), traces=_traces(view)),
        plans=tuple(
            PlanRow(
                after_s=at - view.began_at,
                step=plan.step,
                shares=", ".join(f"{plan.machines.get(name, name)} {share}" for name, share in plan.shares.items()),
                samples_per_s=plan.samples_per_s,
                reason=plan.reason,
            )
            for at, plan in view.merge.plans
            if plan.reason
        ),
        faults=tuple(line for line in happenings if line.kind in FAULTS),
        fault_s=view.merge.regroup_s,
        notices=tuple(line for line in happenings if line.kind == "notice"),
        account=account,
        began_at=view.began_at,
        num_steps=view.state.step,
        repeat=repeat_lines(view),
    )


def _what(view: RunView) -> dict[str, str]:
    state, settings = view.state, view.settings
    words: dict[str, str] = {
        key: str(settings[key]) for key in ("model", "model_size", "dataset", "script") if key in settings
    }
    if state.num_parameters:
        words["parameters"] = f"{state.num_parameters:,}"
    if state.global_batch:
        words["data"] = f"{counted(state.num_samples, 'sample')}, global batch {state.global_batch}"
    if state.mixed_precision != "no":
        words["precision"] = state.mixed_precision
    words["on"] = ", ".join(on_cards(view, machine) for machine in view.machines)
    if state.backend is not None:
        words["gradients"] = backend_text(state.backend)
        words["NCCL"] = held_back_text(state.backend) if state.backend.held_back_by else ""
    for worker in view.merge.workers.values():
        if worker.state.backend is not None:
            words[f"NCCL on {worker.machine}"] = variables_text(worker.state.backend)
    return {key.replace("_", " "): text for key, text in words.items() if text}


def on_cards(view: RunView, machine: str) -> str:
    """The machine, with its cards where they are known."""
    states = [worker.state for worker in view.merge.workers.values() if worker.machine == machine]
    return (
        f"{machine} ({together(state.place for state in states)})" if any(state.card for state in states) else machine
    )


def _result(view: RunView, account: Account | None) -> dict[str, str]:
    state = view.state
    result = {"steps": f"{state.step} of {state.last_step}" if state.last_step else str(state.step)}
    if state.training_s:
        paused = f"; pauses of {duration(view.attendance.paused_s)} are not counted" if view.attendance.paused_s else ""
        took = duration(view.updated_at - view.began_at - view.attendance.paused_s)
        result["time"] = f"{took}, of which {duration(state.training_s)} in steps{paused}"
        result["throughput"] = f"{view.merge.samples_per_s:,.1f} samples/s, the mean over all steps"
    if account is not None:
        result |= {name: text for name, text in figures(account).items() if name != "together"}
    if (energy := energy_of(view)) is not None:
        result["energy"] = energy.text
    if not view.is_simulated:
        result |= losses_text(state)
    if price := round_price_text(state.backend, (event for _, event in view.merge.scores.values())):
        result["rounds"] = f"held-out loss {price}"
    if state.scores:
        result["held out"] = scores_text(state.scores).replace("held-out ", "")
    return result


def _machines(view: RunView, account: Account | None) -> tuple[MachineRow, ...]:
    names, _, _, sums = view.series()
    samples = {name: int(sums[index, :, _OWN].sum()) for index, name in enumerate(names)}
    total = sum(samples.values())
    rows = []
    for machine in view.machines:
        workers = [worker for worker in view.merge.workers.values() if worker.machine == machine]
        own = sum(samples.get(worker.name, 0) for worker in workers)
        steps_away, steps_benched = view.attendance.missed(machine)
        versions = workers[0].state.versions
        rows.append(
            MachineRow(
                machine=machine,
                workers=len(workers),
                device=together(dict.fromkeys(worker.state.place for worker in workers)),
                versions=", ".join(f"{name} {version}" for name, version in versions.items()),
                samples=own,
                part=own / total if total else 0.0,
                samples_per_s=view.merge.samples_per_s * own / total if total else 0.0,
                solo_samples_per_s=None if account is None else account.speed_alone.get(machine),
                steps_away=steps_away,
                steps_benched=steps_benched,
            )
        )
    return tuple(rows)


def _traces(view: RunView) -> tuple[TraceRow, ...]:
    place = view.folder.path if view.folder.origin is None else view.folder.origin[1]
    return tuple(
        TraceRow(
            worker=worker.name,
            place=worker.state.place,
            first_step=traced.first_step,
            last_step=traced.last_step,
            file=str(place / traced.file) if traced.file else "",
            left_out=traced.left_out,
            operators=tuple(
                OperatorRow(name=cost.name, on_device=cost.on_device, calls=cost.calls, seconds=cost.seconds)
                for cost in traced.operators
            ),
        )
        for worker in view.merge.workers.values()
        for traced in worker.traced
    )


def repeat_lines(view: RunView) -> tuple[str, ...]:
    """The commands that start the same run again."""
    settings: dict[str, Any] = view.settings
    if "script" in settings:
        more = [part for word in settings.get("env") or [] for part in ("--env", word)]
        kept = ["--keep", ",".join(map(str, keep))] if isinstance(keep := settings.get("keep"), list) and keep else []
        given = settings.get("command_options")
        more += [
            part
            for name, value in (given.items() if isinstance(given, dict) else ())
            for part in (f"--{str(name).replace('_', '-')}", str(value))
        ]
        run = ["potluck", "run", *(["--plain"] if view.is_plain else []), *more, *kept]
        here = ["potluck", "run", "--solo", *more] if more else ["python"]
        words = [*(run if settings.get("bundle") else here), settings["script"]]
        return (" ".join(quote(str(word)) for word in [*words, *(settings.get("arguments") or [])]),)
    if not settings or view.is_simulated:
        return ()
    if view.folder.origin is not None:
        host, place = view.folder.origin
        return (f"on {host}: potluck train --config {quote(RunFolder(place).settings_file)}",)
    return (f"potluck train --config {quote(view.folder.settings_file)}",)
