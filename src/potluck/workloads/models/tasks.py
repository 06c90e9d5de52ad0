"""Learning tasks: the loss of a batch, and the scores on held-out data."""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from potluck.workloads.datasets.masked import IGNORED, MaskedWindows

Samples = Dataset[tuple[Tensor, ...]]


class Task(Protocol):
    """A learning problem; batches come from the dataset that `view` returns."""

    def view(self, dataset: Samples) -> Samples:
        """The dataset as this task reads it."""
        ...

    def loss(self, model: nn.Module, *batch: Tensor) -> tuple[Tensor, int | Tensor]:
        """The mean loss over the counted elements (images or tokens), and the number of these elements."""
        ...

    def measure(self, model: nn.Module, *batch: Tensor) -> dict[str, Tensor]:
        """Loss and accuracy, one value for each counted element, so that any split averages exactly."""
        ...


@dataclass(frozen=True, slots=True)
class Classification:
    """Predict one label for each image."""

    def view(self, dataset: Samples) -> Samples:
        return dataset

    def loss(self, model: nn.Module, *batch: Tensor) -> tuple[Tensor, int | Tensor]:
        images, labels = batch
        return F.cross_entropy(_widened(model(images)), labels), len(labels)

    def measure(self, model: nn.Module, *batch: Tensor) -> dict[str, Tensor]:
        images, labels = batch
        return _measured(model(images), labels)


@dataclass(frozen=True, slots=True)
class NextToken:
    """Predict each token of a window from the tokens before it; the first token is not counted."""

    def view(self, dataset: Samples) -> Samples:
        return dataset

    def loss(self, model: nn.Module, *batch: Tensor) -> tuple[Tensor, int | Tensor]:
        logits, targets = self._predict(model, *batch)
        return F.cross_entropy(_widened(logits), targets), len(targets)

    def measure(self, model: nn.Module, *batch: Tensor) -> dict[str, Tensor]:
        return _measured(*self._predict(model, *batch))

    def _predict(self, model: nn.Module, tokens: Tensor) -> tuple[Tensor, Tensor]:
        logits = model(tokens[:, :-1])
        return logits.flatten(0, 1), tokens[:, 1:].flatten()


@dataclass(frozen=True, slots=True)
class MaskedToken:
    """Predict masked tokens from the tokens around them; only masked tokens are counted."""

    def view(self, dataset: Samples) -> Samples:
        return MaskedWindows(dataset)

    def loss(self, model: nn.Module, *batch: Tensor) -> tuple[Tensor, int | Tensor]:
        tokens, targets = batch
        logits = _widened(model(tokens))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED), targets.ne(IGNORED).sum()

    def measure(self, model: nn.Module, *batch: Tensor) -> dict[str, Tensor]:
        tokens, targets = batch
        counted = targets.ne(IGNORED)
        return _measured(model(tokens)[counted], targets[counted])


def _measured(logits: Tensor, targets: Tensor) -> dict[str, Tensor]:
    losses = F.cross_entropy(_widened(logits), targets, reduction="none")
    return {"loss": losses, "accuracy": logits.argmax(-1).eq(targets).to(losses.dtype)}


def _widened(logits: Tensor) -> Tensor:
    # A softmax in half precision loses what mixed precision must keep; float64 stays as it is.
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


TASKS: dict[str, Task] = {
    "classification": Classification(),
    "next_token": NextToken(),
    "masked_token": MaskedToken(),
}
