"""Losses, measures and masks mean what the trainer takes them to mean."""

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from potluck.workloads.datasets import DataOptions, load_dataset
from potluck.workloads.datasets.masked import IGNORED
from potluck.workloads.datasets.windows import MASK, VOCABULARY_SIZE, WINDOW
from potluck.workloads.models.tasks import TASKS


class Guess(nn.Module):
    """Logits that depend on the input alone."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.randn(VOCABULARY_SIZE, num_classes))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scores[inputs]


def text_batch(task: str) -> tuple[Tensor, ...]:
    tokens = torch.randint(256, (6, WINDOW))
    if task == "next_token":
        return (tokens,)
    return tokens, torch.where(torch.rand(6, WINDOW) < 0.2, tokens, IGNORED)


@pytest.mark.parametrize("name", TASKS)
def test_the_loss_is_the_mean_of_what_is_measured(name: str) -> None:
    torch.manual_seed(0)
    task = TASKS[name]
    batch = (torch.arange(40), torch.randint(10, (40,))) if name == "classification" else text_batch(name)
    model = Guess(10 if name == "classification" else VOCABULARY_SIZE)
    loss, count = task.loss(model, *batch)
    measured = task.measure(model, *batch)
    assert {key: values.shape for key, values in measured.items()} == dict.fromkeys(("loss", "accuracy"), (int(count),))
    torch.testing.assert_close(measured["loss"].mean(), loss)
    assert set(measured["accuracy"].unique().tolist()) <= {0.0, 1.0}


def test_the_next_token_is_predicted_from_the_one_before() -> None:
    tokens = torch.arange(2 * WINDOW).view(2, WINDOW) % 256
    model = Guess(VOCABULARY_SIZE)
    with torch.no_grad():
        model.scores.copy_(torch.eye(VOCABULARY_SIZE).roll(1, dims=1) * 100)  # n is always followed by n + 1
    measured = TASKS["next_token"].measure(model, tokens)
    assert measured["accuracy"].mean() == 1
    assert len(measured["accuracy"]) == 2 * (WINDOW - 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_give_a_full_precision_loss(dtype: torch.dtype) -> None:
    model = Guess(10).to(dtype)
    loss, _ = TASKS["classification"].loss(model, torch.arange(8), torch.arange(8))
    assert loss.dtype == torch.float32


def test_float64_stays_float64() -> None:
    loss, _ = TASKS["classification"].loss(Guess(10).double(), torch.arange(8), torch.arange(8))
    assert loss.dtype == torch.float64


def masked(seed: int, count: int = 400) -> tuple[Tensor, Tensor, Tensor]:
    windows = load_dataset("synthetic_text", DataOptions(data_dir=Path("unused"), num_samples=count, seed=0)).train
    view = TASKS["masked_token"].view(windows)
    torch.manual_seed(seed)
    random.seed(seed)
    samples = [view[index] for index in range(count)]
    return windows.potluck_batch(torch.arange(count))[0], *(torch.stack(part) for part in zip(*samples, strict=True))


def test_masks_follow_the_80_10_10_rule() -> None:
    tokens, read, targets = masked(seed=0)
    asked = targets != IGNORED
    assert torch.equal(targets[asked], tokens[asked])
    assert torch.equal(read[~asked], tokens[~asked])
    assert asked.float().mean() == pytest.approx(0.15, abs=0.01)
    assert (read[asked] == MASK).float().mean() == pytest.approx(0.8, abs=0.02)
    # One in 256 of the random bytes is the byte itself.
    assert (read[asked] == tokens[asked]).float().mean() == pytest.approx(0.1, abs=0.02)
    assert int(read.max()) == MASK
    assert read.dtype == targets.dtype == torch.int64


def test_every_window_hides_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("potluck.workloads.datasets.masked.HIDDEN_SHARE", 0.0)
    _, _, targets = masked(seed=0, count=20)
    assert (targets != IGNORED).sum(dim=1).tolist() == [1] * 20


def test_masks_are_a_function_of_the_global_seed() -> None:
    one, same, other = masked(seed=0, count=20), masked(seed=0, count=20), masked(seed=1, count=20)
    assert torch.equal(one[1], same[1])
    assert torch.equal(one[2], same[2])
    assert not torch.equal(one[2], other[2])
