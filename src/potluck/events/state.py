"""The state that a worker's events add up to: a pure function from (state, record) to state."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from potluck.events.types import (
    BackendChosen,
    CheckpointSaved,
    EpochEnded,
    Evaluated,
    LossDiverged,
    MachineBenched,
    MachineUnbenched,
    MetricsLogged,
    ModelPrepared,
    PlanChanged,
    Record,
    RunEnded,
    RunResumed,
    RunStarted,
    StepCommitted,
    TrainingBegan,
    WorkersUsed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAST_S = 1e-9  # no step is shorter, and samples divided by less may overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRow:
    """One finished epoch."""

    epoch: int
    step: int
    loss: float | None
    samples: int
    seconds: float
    scores: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """One worker's view of its run after the events read so far."""

    run: str = ""
    machine: str = ""
    worker: int = 0
    device: str = ""
    card: str = ""
    card_id: str = ""
    mixed_precision: str = "no"
    versions: dict[str, str] = field(default_factory=dict)
    num_parameters: int = 0
    started_at: float = 0.0
    updated_at: float = 0.0
    num_samples: int = 0
    global_batch: int = 0
    steps_per_epoch: int = 0
    num_epochs: int = 0
    last_step: int = 0
    left_out: int = 0
    """Batches that the script left out so far, by leaving the loader's loop early."""
    step: int = 0
    loss: float | None = None
    diverged_since: int = 0
    """The step since which the loss has been not a number or far too high; 0 if it never diverged or has recovered."""
    diverged_limit: float | None = None
    scores: dict[str, float | None] = field(default_factory=dict)
    """The latest evaluations, as <name>_<metric>, all made at scores_step."""
    scores_step: int = -1
    metrics: dict[str, float | None] = field(default_factory=dict)
    epochs: tuple[EpochRow, ...] = ()
    checkpoint: str = ""
    """The newest checkpoint that this run saved."""
    resumed_from: str = ""
    times_resumed: int = 0
    skipped_steps: int = 0
    samples_seen: int = 0
    """Samples of committed steps, repeated ones counted each time: the base of the throughput."""
    training_s: float = 0.0
    """Seconds spent in committed steps."""
    shares: dict[str, int] = field(default_factory=dict)
    """Samples a step of each worker, by the plan in force; empty before the first plan."""
    predicted_samples_per_s: float = 0.0
    num_plan_changes: int = 0
    """How often the split changed after the first plan."""
    benched: tuple[str, ...] = ()
    backend: BackendChosen | None = None
    """How gradients are exchanged, and why; None before the first step with other workers."""
    used: WorkersUsed | None = None
    """Of a plain run: what its workers on this machine have used so far."""
    ended: str = ""
    """finished, stopped or failed; empty while the process lives or if it was killed."""
    message: str = ""

    @property
    def place(self) -> str:
        """The card that the worker trains on, or its device where the card is not known."""
        return self.card or self.device

    @property
    def epoch(self) -> int:
        """Number of complete epochs."""
        return (self.step + self.left_out) // self.steps_per_epoch if self.steps_per_epoch else 0

    @property
    def samples_per_s(self) -> float:
        """Mean throughput over all committed steps."""
        return self.samples_seen / self.training_s if self.training_s > LEAST_S else 0.0


def apply(state: RunState, record: Record) -> RunState:
    """The state after one more event."""
    changes = _changes(state, record)
    return replace(state, updated_at=record.time, **changes)


def replay(records: "Iterable[Record]", state: RunState | None = None) -> RunState:
    """The state after all records, starting from `state`, or from an empty state."""
    state = RunState() if state is None else state
    for record in records:
        state = apply(state, record)
    return state


def after_steps(
    state: RunState, last: StepCommitted, *, lowest_step: int, at: float, samples: int, seconds: float, skipped: int
) -> RunState:
    """The state after several StepCommitted events in a row, from their sums: the same as `apply` on each of them."""
    return replace(
        state,
        updated_at=at,
        step=last.step,
        epochs=_epochs_before(state, lowest_step),
        loss=last.loss,
        diverged_since=_still_diverged(state, last.loss),
        samples_seen=state.samples_seen + samples,
        training_s=state.training_s + seconds,
        skipped_steps=state.skipped_steps + skipped,
    )


def _epochs_before(state: RunState, step: int) -> tuple[EpochRow, ...]:
    """The finished epochs that end before `step`, which is now committed: later epochs are being trained again.

    The step of a RunResumed event would drop too many epochs: a peer with a newer checkpoint may heal this worker.
    """
    if not state.epochs or state.epochs[-1].step < step:
        return state.epochs
    return tuple(row for row in state.epochs if row.step < step)


def _still_diverged(state: RunState, loss: float | None) -> int:
    has_recovered = loss is not None and (state.diverged_limit is None or loss <= state.diverged_limit)
    return 0 if has_recovered else state.diverged_since


def _changes(state: RunState, record: Record) -> dict[str, Any]:  # noqa: PLR0911, PLR0912  one return an event type
    match record.event:
        case RunStarted(run=run, machine=machine, worker=worker, device=device, versions=versions) as event:
            return {
                "run": run,
                "machine": machine,
                "worker": worker,
                "device": device,
                "card": event.card,
                "card_id": event.card_id,
                "mixed_precision": event.mixed_precision,
                "versions": versions,
                "started_at": state.started_at or record.time,
                "ended": "",
                "message": "",
            }
        case RunResumed(step=step, checkpoint=checkpoint):
            return {
                "step": step,
                "resumed_from": checkpoint,
                "diverged_since": 0 if step < state.diverged_since else state.diverged_since,
                "times_resumed": state.times_resumed + 1,
            }
        case ModelPrepared(num_parameters=num_parameters):
            return {"num_parameters": num_parameters}
        case TrainingBegan() as event:
            return {
                "num_samples": event.num_samples,
                "global_batch": event.global_batch,
                "steps_per_epoch": event.steps_per_epoch,
                "num_epochs": event.num_epochs,
                "last_step": event.last_step,
                "left_out": event.left_out,
            }
        case StepCommitted() as event:
            return {
                "step": event.step,
                "epochs": _epochs_before(state, event.step),
                "loss": event.loss,
                "diverged_since": _still_diverged(state, event.loss),
                "samples_seen": state.samples_seen + event.samples,
                "training_s": state.training_s + event.seconds,
                "skipped_steps": state.skipped_steps + event.skipped,
            }
        case PlanChanged(shares=shares, samples_per_s=samples_per_s) as event:
            return {
                "shares": shares,
                "predicted_samples_per_s": samples_per_s,
                "num_plan_changes": state.num_plan_changes + bool(state.shares and event.replaces(state.shares)),
            }
        case BackendChosen() as event:
            return {"backend": event}
        case MachineBenched(machine=machine):
            return {"benched": (*(name for name in state.benched if name != machine), machine)}
        case MachineUnbenched(machine=machine):
            return {"benched": tuple(name for name in state.benched if name != machine)}
        case EpochEnded(epoch=epoch, step=step, samples=samples, loss=loss, seconds=seconds, left_out=left_out):
            earlier = tuple(row for row in state.epochs if row.epoch < epoch)
            scores = state.scores if state.scores_step == step else {}
            row = EpochRow(epoch=epoch, step=step, loss=loss, samples=samples, seconds=seconds, scores=scores)
            # Batches that the script left out shorten the run, unless its max_steps ends the run earlier.
            total = state.num_epochs * state.steps_per_epoch - state.left_out - left_out
            last_step = min(state.last_step, total) if left_out else state.last_step
            return {"epochs": (*earlier, row), "left_out": state.left_out + left_out, "last_step": last_step}
        case Evaluated(step=step, name=name, values=values):
            named = {f"{name}_{key}": value for key, value in values.items()}
            same_step = state.scores if state.scores_step == step else {}
            return {"scores": {**same_step, **named}, "scores_step": step}
        case LossDiverged(step=step, limit=limit):
            return {"diverged_since": step, "diverged_limit": limit}
        case MetricsLogged(values=values):
            return {"metrics": {**state.metrics, **values}}
        case CheckpointSaved(file=file):
            return {"checkpoint": file}
        case WorkersUsed() as used:
            return {"used": used}
        case RunEnded(reason=reason, message=message):
            return {"ended": reason, "message": message}
    return {}
