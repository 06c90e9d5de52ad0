"""A run's events as named numbers at steps, for tools that draw curves."""

from potluck.events.state import RunState
from potluck.events.types import EpochEnded, Evaluated, MachineUsed, MetricsLogged, PlanChanged, Record, StepCommitted


def scalars(record: Record, state: RunState) -> tuple[int, dict[str, float]]:
    """The step and the named numbers of an event; most kinds of events have none."""
    step, values = _numbers(record, state)
    return step, {name: value for name, value in values.items() if value is not None}


def _numbers(record: Record, state: RunState) -> tuple[int, dict[str, float | None]]:  # noqa: PLR0911  one an event
    match record.event:
        case StepCommitted(step=step, loss=loss, samples=samples, seconds=seconds):
            return step, {"train/loss": loss, "speed/samples_per_s": samples / seconds if seconds else None}
        case EpochEnded(step=step, loss=loss):
            return step, {"train/epoch_loss": loss}
        case Evaluated(step=step, name=name, values=values):
            return step, {f"{name}/{key}": value for key, value in values.items()}
        case MetricsLogged(step=step, values=values):
            return step, dict(values)
        case PlanChanged(step=step, shares=shares, samples_per_s=samples_per_s):
            parts: dict[str, float | None] = {f"share/{worker}": float(share) for worker, share in shares.items()}
            return step, {**parts, "speed/predicted_samples_per_s": samples_per_s}
        case MachineUsed() as used:
            busy = [gpu.busy for gpu in used.gpus if gpu.busy is not None]
            memory = [gpu.memory_bytes for gpu in used.gpus if gpu.memory_bytes is not None]
            power = [gpu.power_w for gpu in used.gpus if gpu.power_w is not None]
            return state.step, {
                f"{state.machine}/cpu_busy": used.cpu,
                f"{state.machine}/memory_gb": used.memory_bytes / 1e9,
                f"{state.machine}/gpu_busy": sum(busy) / len(busy) if busy else None,
                f"{state.machine}/gpu_memory_gb": sum(memory) / 1e9 if memory else None,
                f"{state.machine}/gpu_power_w": sum(power) if power else None,
            }
    return 0, {}
