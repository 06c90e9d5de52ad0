"""The content of a checkpoint: all state that a resumed or healed worker needs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from potluck.core.errors import CheckpointError
from potluck.core.words import counted
from potluck.engine.compute.frozen import FrozenParameters, FrozenPart, without
from potluck.engine.compute.frozen_precision import remember_source, source_of
from potluck.engine.compute.outer_step import OuterStep
from potluck.engine.compute.precision import Precision
from potluck.engine.order.position import DataOrder

FORMAT = 1
FORMAT_WITH_FROZEN = 2
"""Of large frozen parameters it has the digests only."""
_SMALL_BYTES = 1 << 24


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


class Stateful(Protocol):
    """An object of the script whose state belongs to the run, as torch.distributed.checkpoint names it."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any: ...


@dataclass(slots=True)
class TrainingState:
    """The objects whose state a checkpoint holds. Random draws and data position follow from the step."""

    precision: Precision
    models: list[nn.Module] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)
    schedulers: list[LRScheduler] = field(default_factory=list)
    others: list[Stateful] = field(default_factory=list)
    outer: OuterStep | None = None
    """The outer step, in a run that trains in rounds."""
    frozen_precision: str | None = None
    """In which precision this machine keeps frozen parameters, if not as the script loaded them."""
    _frozen: FrozenParameters = field(default_factory=FrozenParameters)

    @property
    def model(self) -> nn.Module:
        """The only model, or an nn.ModuleList of all models."""
        return self.models[0] if len(self.models) == 1 else nn.ModuleList(self.models)

    @property
    def is_several(self) -> bool:
        """Whether there is more than one model or optimizer."""
        return len(self.models) > 1 or len(self.optimizers) > 1

    @property
    def has_several_optimizers(self) -> bool:
        return len(self.optimizers) > 1

    def parameters(self) -> list[Tensor]:
        """The parameters of all models, each once."""
        return list({parameter: None for model in self.models for parameter in model.parameters()})

    def trained_parameters(self) -> list[Tensor]:
        """The parameters that the optimizers train, including groups added after run.prepare."""
        return [parameter for optimizer in self.optimizers for parameter in parameters_of(optimizer)]

    def frozen(self) -> dict[str, FrozenPart]:
        """What no step changes, by its name in the state dict of `model`."""
        return self._frozen.find(self.model)

    def values(self) -> dict[str, Tensor]:
        """Parameters and buffers of all models by name."""
        return dict(self.model.state_dict())

    def with_small_frozen(self, state: dict[str, Any]) -> dict[str, Any]:
        """A captured state as a file has it: with all that is frozen, if that is little, in case it is random.

        Rounded parameters are not those that the digests are of, and stay out.
        """
        names = {} if self.frozen_precision else state.get("frozen", {})
        values = {name: value for name, value in self.values().items() if name in names} if names else {}
        if sum(value.nbytes for value in values.values()) > _SMALL_BYTES:
            return state
        return {**state, "model": {**state["model"], **values}}

    def move_schedules(self, num_steps: int, at: int) -> None:
        """Move the schedules that the script moves with every step: they have counted `at` steps, like the run."""
        for scheduler in self.schedulers:
            if getattr(scheduler, "last_epoch", None) == at:
                for _ in range(num_steps):
                    scheduler.step()

    def capture(self, step: int, order: DataOrder, so_far: EpochSoFar) -> dict[str, Any]:
        """The state after `step` committed steps, as tensors and plain data."""
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        frozen = {name: part.digest for name, part in self.frozen().items()}
        return {
            "format": FORMAT_WITH_FROZEN if frozen else FORMAT,
            "step": step,
            "left_out": order.left_out,
            "data": data_position(order),
            "epoch_so_far": asdict(so_far),
            "num_models": len(self.models),
            "model": without(self.model.state_dict(), frozen),
            **({"frozen": frozen} if frozen else {}),
            **({"frozen_precision": self.frozen_precision} if frozen and self.frozen_precision else {}),
            **({"optimizer": optimizers[0]} if len(optimizers) == 1 else {"optimizers": optimizers}),
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
            "precision": self.precision.state_dict(),
            **({"others": [other.state_dict() for other in self.others]} if self.others else {}),
            **({} if self.outer is None else {"outer": self.outer.state_dict()}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Load a captured state into the objects."""
        self.check_numbers(state)
        for index in range(len(self.models)):
            self.restore_model(state, index)
        for index in range(len(self.optimizers)):
            self.restore_optimizer(state, index)
        for index in range(len(self.schedulers)):
            self.restore_scheduler(state, index)
        for index in range(len(self.others)):
            self.restore_other(state, index)
        self.precision.load_state_dict(state["precision"])
        if self.outer is not None:
            self.outer.load_state_dict(state.get("outer"))

    def check_numbers(self, state: dict[str, Any]) -> None:
        """Refuse a state with another number of models, optimizers or schedules."""
        then = (state.get("num_models", 1), len(_optimizer_states(state)), len(state["schedulers"]))
        now = (len(self.models), len(self.optimizers), len(self.schedulers))
        for kind, saved, given in zip(("models", "optimizers", "schedulers"), then, now, strict=True):
            if saved != given:
                raise CheckpointError(
                    f"the checkpoint holds {saved} {kind}, run.prepare got {given}",
                    fix=f"pass run.prepare the same {kind} as when the run began",
                )

    def restore_model(self, state: dict[str, Any], index: int) -> None:
        """Restore the model that run.prepare got as number `index`, from 0; do nothing if the state has fewer."""
        num_models = state.get("num_models", 1)
        if index >= num_models:
            return
        prefix = "" if num_models == 1 else f"{index}."
        own = {name[len(prefix) :]: value for name, value in state["model"].items() if name.startswith(prefix)}
        frozen = {n[len(prefix) :]: digest for n, digest in state.get("frozen", {}).items() if n.startswith(prefix)}
        model, missing = self.models[index], frozen.keys() - own.keys()
        self._frozen.replaced((f"{prefix}{name}" for name in own), state.get("frozen", {}))
        with _another_kind():
            mine = dict(model.state_dict(keep_vars=True))
            if not missing:
                model.load_state_dict(own)
                _remember_sources(mine, own, frozen)
                return
            self._check_frozen(mine, {name: frozen[name] for name in missing}, prefix)
            result = model.load_state_dict(own, strict=False)
            _remember_sources(mine, own, frozen)
            lacking = without(dict.fromkeys(result.missing_keys), missing)
            if lacking or result.unexpected_keys:
                raise KeyError(f"missing: {list(lacking)[:3]}, unexpected: {result.unexpected_keys[:3]}")

    def _check_frozen(self, mine: Mapping[str, Tensor], wanted: Mapping[str, str], prefix: str) -> None:
        """Refuse a state that was trained on top of other frozen parameters than these."""
        for name, digest in wanted.items():
            if name not in mine or self._frozen.digest(f"{prefix}{name}", mine[name]) != digest:
                raise CheckpointError(
                    f"the frozen parameter {name} is not the one that the run began with",
                    fix="load the same base model as then, from the same files, before run.prepare",
                )

    def restore_optimizer(self, state: dict[str, Any], index: int) -> None:
        """Restore the optimizer that run.prepare got as number `index`, from 0; do nothing if the state has fewer."""
        states = _optimizer_states(state)
        if index < len(states):
            with _another_kind():
                self.optimizers[index].load_state_dict(states[index])

    def restore_scheduler(self, state: dict[str, Any], index: int) -> None:
        """Restore the schedule that run.prepare got as number `index`, from 0; do nothing if the state has fewer."""
        if index < len(state["schedulers"]):
            self.schedulers[index].load_state_dict(state["schedulers"][index])

    def restore_other(self, state: dict[str, Any], index: int) -> None:
        """Restore another object that run.prepare got as number `index`, from 0; do nothing if the state has fewer."""
        states = state.get("others", [])
        if index < len(states):
            self.others[index].load_state_dict(states[index])


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """The parameters that the optimizer trains."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def follow_parameters(optimizer: Optimizer) -> None:
    """Move the state that the optimizer had before its parameters were moved to another device."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            # torch's optimizers count their steps on the CPU, whatever the device of the parameters.
            if isinstance(value, Tensor) and name != "step":
                state[name] = value.to(parameter.device)


def _remember_sources(mine: Mapping[str, Tensor], loaded: Mapping[str, Tensor], digests: Mapping[str, str]) -> None:
    """Rounded parameters have got other values, and count as these."""
    for name in loaded.keys() & digests.keys():
        if source_of(mine[name]) is not None:
            remember_source(mine[name], loaded[name].dtype, digests[name])


def _optimizer_states(state: dict[str, Any]) -> list[dict[str, Any]]:
    return [state["optimizer"]] if "optimizer" in state else list(state["optimizers"])


@contextmanager
def _another_kind() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, KeyError) as error:
        # torch names every parameter that does not fit, one a line after the first.
        lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
        first, more = lines[min(1, len(lines) - 1)] if lines else type(error).__name__, len(lines) - 2
        raise CheckpointError(
            "the checkpoint is of another model or optimizer: "
            + first.rstrip(".")[:300]
            + (f", and {counted(more, 'other difference')}" if more > 0 else ""),
            fix="use the model, size and optimizer that the run began with",
        ) from error


def data_position(order: DataOrder) -> dict[str, int | bool]:
    """The settings that must stay the same for a step number to mean the same samples."""
    return {
        "num_samples": order.num_samples,
        "global_batch": order.global_batch,
        "seed": order.seed,
        "shuffle": order.shuffle,
        "drop_last": order.drop_last,
    }


_USUAL = {"shuffle": True, "drop_last": False}  # for checkpoints without these fields


def check_same_data(state: dict[str, Any], order: DataOrder) -> None:
    """Refuse to go on from a step number that would point at other samples."""
    then, now = _USUAL | state["data"], data_position(order)
    changed = [f"{name} was {then[name]}, now {now[name]}" for name in now if then[name] != now[name]]
    if changed:
        raise CheckpointError(
            f"the checkpoint's position in the data does not fit: {', '.join(changed)}",
            fix="resume with the values that the run began with, or start a new run",
        )


def epoch_of_state(state: dict[str, Any]) -> int:
    """The epoch that a captured state is in, counted from 0."""
    then = _USUAL | state["data"]
    order = DataOrder(then["num_samples"], then["global_batch"], then["seed"], drop_last=bool(then["drop_last"]))
    order.left_out = int(state.get("left_out", 0))
    return order.epoch_of(int(state["step"]))


def check_state(state: dict[str, Any], source: str) -> dict[str, Any]:
    """The state; raises CheckpointError if this version cannot restore its format."""
    if state.get("format") not in (FORMAT, FORMAT_WITH_FROZEN):
        raise CheckpointError(
            f"{source} has checkpoint format {state.get('format')!r}; this Potluck reads {FORMAT} and "
            f"{FORMAT_WITH_FROZEN}",
            fix="use the Potluck version that wrote it, or another checkpoint",
        )
    return state
