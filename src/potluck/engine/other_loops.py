"""The part of a Run for tools that bring a training loop, checkpoints and an evaluation of their own."""

from collections.abc import Mapping

import torch
from torch.utils.data import TensorDataset

from potluck.engine.checkpoints.state import Stateful
from potluck.engine.data.evaluation import evaluate
from potluck.engine.steps.parts import RunParts
from potluck.engine.steps.progress import Progress


class OtherLoops:
    """What such a tool asks of a run; `potluck.integrations` is made of it."""

    seed: int
    _parts: RunParts
    _progress: Progress

    @property
    def loss(self) -> float | None:
        """The mean loss of the last committed step over all machines; None before it, or if it is not finite."""
        return self._parts.journal.state.loss

    @property
    def has_gradients(self) -> bool:
        """Whether the open step's last micro-batch has had its backward pass: gradients are the global mean."""
        return self._progress.current_step("run.has_gradients").has_all_gradients

    @property
    def scaler(self) -> Stateful | None:
        """The loss scale of mixed_precision='fp16', as an object with `state_dict` and `load_state_dict`; else None.

        For tools that save it in checkpoints of their own; the run's checkpoints have it.
        """
        precision = self._parts.precision
        return precision if precision.name == "fp16" else None

    @property
    def writes(self) -> bool:
        """Whether this worker saves files and prints for the script; if its machine is lost, another worker does."""
        return self._parts.group.writes

    def go_on_after(self, step: int) -> None:
        """Count steps from `step`, whose state the script has loaded itself. A resumed run has its own step and state.

        Call it after `prepare` and before `epochs`. Machines that have loaded nothing get the state of one that has.
        """
        self._progress.position.go_on_after(step)

    def agree(self, values: Mapping[str, float]) -> dict[str, float]:
        """The values of one machine, on all machines that are at the same place of the script."""
        if not values:
            return {}
        measured = {name: torch.tensor([value], dtype=torch.float64) for name, value in values.items()}
        self._progress.settle_step()
        return evaluate(
            TensorDataset(torch.zeros(1)),
            lambda _: measured,
            group=self._parts.group,
            device=self._parts.device,
            batch=1,
            seed=self.seed,
            collate=None,
        )
