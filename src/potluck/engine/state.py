"""Everything that a resumed or healed worker must get back: the content of a checkpoint."""

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from potluck.core.errors import CheckpointError
from potluck.engine.position import DataOrder
from potluck.engine.precision import Precision

FORMAT = 1


@dataclass(slots=True)
class EpochSoFar:
    """Sums over the committed steps of the current epoch."""

    loss_sum: float = 0.0
    weight: float = 0.0
    samples: int = 0
    seconds: float = 0.0

    @property
    def mean_loss(self) -> float | None:
        return self.loss_sum / self.weight if self.weight else None

    def add(self, *, loss_sum: float, weight: float, samples: int, seconds: float) -> None:
        self.loss_sum += loss_sum
        self.weight += weight
        self.samples += samples
        self.seconds += seconds


@dataclass(frozen=True, slots=True)
class TrainingState:
    """The objects whose state makes a run what it is. Random draws and data position follow from the step."""

    model: nn.Module
    optimizer: Optimizer
    schedulers: tuple[LRScheduler, ...]
    precision: Precision

    def capture(self, step: int, order: DataOrder, so_far: EpochSoFar) -> dict[str, Any]:
        """The state after that many committed steps, as tensors and plain data."""
        return {
            "format": FORMAT,
            "step": step,
            "data": data_position(order),
            "epoch_so_far": asdict(so_far),
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
            "precision": self.precision.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Put a captured state into the objects."""
        if len(state["schedulers"]) != len(self.schedulers):
            raise CheckpointError(
                f"the checkpoint holds {len(state['schedulers'])} schedulers, run.prepare got {len(self.schedulers)}",
                fix="pass run.prepare the same schedulers as when the run began",
            )
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(
                f"the checkpoint is of another model or optimizer: {' '.join(str(error).split())[:300]}",
                fix="use the model, size and optimizer that the run began with",
            ) from error
        for scheduler, saved in zip(self.schedulers, state["schedulers"], strict=True):
            scheduler.load_state_dict(saved)
        self.precision.load_state_dict(state["precision"])


def data_position(order: DataOrder) -> dict[str, int]:
    """What must stay the same for a step number to mean the same samples."""
    return {"num_samples": order.num_samples, "global_batch": order.global_batch, "seed": order.seed}


def check_same_data(state: dict[str, Any], order: DataOrder) -> None:
    """Refuse to go on from a step number that would point at other samples."""
    then, now = state["data"], data_position(order)
    changed = [f"{name} was {then[name]}, now {now[name]}" for name in now if then[name] != now[name]]
    if changed:
        raise CheckpointError(
            f"the checkpoint's position in the data does not fit: {', '.join(changed)}",
            fix="resume with the values that the run began with, or start a new run",
        )


def check_state(state: dict[str, Any], source: str) -> dict[str, Any]:
    """The state, if it is one that this version can restore."""
    if state.get("format") != FORMAT:
        raise CheckpointError(
            f"{source} has checkpoint format {state.get('format')!r}; this Potluck reads {FORMAT}",
            fix="use the Potluck version that wrote it, or another checkpoint",
        )
    return state
