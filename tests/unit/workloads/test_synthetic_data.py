"""Synthetic data is the same everywhere, never leaks into the held-out part, and can be learned."""

import hashlib
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor

from potluck.core.errors import DataError, WorkloadError
from potluck.workloads.datasets import DataOptions, Splits, load_dataset
from potluck.workloads.models import build_model, find_model

SYNTHETIC = ["synthetic_image", "synthetic_text"]


def load(name: str, num_samples: int | None = 600, seed: int = 0) -> Splits:
    return load_dataset(name, DataOptions(data_dir=Path("unused"), num_samples=num_samples, seed=seed))


def content(dataset: object) -> Tensor:
    raw = dataset.text if hasattr(dataset, "text") else dataset.pixels
    return raw.flatten(1)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_the_same_seed_gives_the_same_data(name: str) -> None:
    one, same, other = load(name), load(name), load(name, seed=1)
    for index in (0, 599):
        assert all(torch.equal(a, b) for a, b in zip(one.train[index], same.train[index], strict=True))
    assert torch.equal(content(one.held_out), content(same.held_out))
    assert not torch.equal(content(one.train), content(other.train))


@pytest.mark.parametrize(
    ("name", "digest"),
    [("synthetic_image", "4a5f166ff1460b01"), ("synthetic_text", "8f6f7271c0af434a")],
)
def test_every_machine_and_version_makes_these_bytes(name: str, digest: str) -> None:
    made = content(load(name).train).contiguous().numpy().tobytes()
    assert hashlib.sha256(made).hexdigest()[:16] == digest


@pytest.mark.parametrize("name", SYNTHETIC)
def test_the_first_samples_do_not_depend_on_how_many_are_asked_for(name: str) -> None:
    few, many = load(name, 700), load(name, 1500)
    assert torch.equal(content(few.train), content(many.train)[:700])


@pytest.mark.parametrize("name", SYNTHETIC)
def test_training_and_held_out_samples_are_disjoint(name: str) -> None:
    splits = load(name, 2000)
    train = {bytes(row.tolist()) for row in content(splits.train)}
    held_out = {bytes(row.tolist()) for row in content(splits.held_out)}
    assert len(train) == 2000
    assert len(held_out) == 500
    assert not train & held_out


@pytest.mark.parametrize("name", SYNTHETIC)
def test_sizes(name: str) -> None:
    assert (len(load(name, None).train), len(load(name, None).held_out)) == (10_000, 2_000)
    assert (len(load(name, 1).train), len(load(name, 1).held_out)) == (1, 500)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_batch_is_its_samples(name: str) -> None:
    train = pickle.loads(pickle.dumps(load(name).train))
    indices = torch.tensor([5, 0, 599])
    for whole, *parts in zip(train.potluck_batch(indices), *(train[int(index)] for index in indices), strict=True):
        assert torch.equal(whole, torch.stack(parts))


def test_images_are_normalised() -> None:
    images, labels = load("synthetic_image").train.potluck_batch(torch.arange(600))
    assert images.dtype == torch.float32
    assert images.mean().abs() < 0.1
    assert 0.8 < images.std() < 1.2
    assert sorted(labels.unique().tolist()) == list(range(10))


def train(
    model_name: str, size: str, splits: Splits, *, optimizer_name: str, num_epochs: int, batch_size: int
) -> tuple[list[float], float]:
    """A plain PyTorch loop; losses, and the accuracy on some held-out data."""
    torch.manual_seed(0)
    task = find_model(model_name).task
    model = build_model(model_name, size, splits)
    optimizer = {
        "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        "adamw": lambda: torch.optim.AdamW(model.parameters(), lr=1e-3),
    }[optimizer_name]()
    losses = []
    for _ in range(num_epochs):
        for indices in torch.randperm(len(splits.train)).split(batch_size):
            loss, _ = task.loss(model, *splits.train.potluck_batch(indices))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    with torch.no_grad():
        measured = task.measure(model, *splits.held_out.potluck_batch(torch.arange(200)))
    return losses, float(measured["accuracy"].mean())


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.slow
def test_simple_cnn_learns_the_images_but_not_at_once(optimizer: str) -> None:
    losses, accuracy = train(
        "simple_cnn", "base", load("synthetic_image", 2000), optimizer_name=optimizer, num_epochs=2, batch_size=64
    )
    assert 0.6 < accuracy < 0.98
    assert sum(losses[8:12]) / 4 > 1.2
    assert sum(losses[-4:]) / 4 < 1.0


@pytest.mark.slow
def test_gpt2_learns_the_text() -> None:
    splits = load("synthetic_text", 400)
    counts = torch.bincount(content(splits.train).flatten().long())
    shares = counts[counts > 0] / counts.sum()
    by_letter = float(-(shares * shares.log()).sum())  # the best loss for a model that ignores the context
    assert by_letter < 3.3  # far below log(256) = 5.5, a uniform guess
    losses, _ = train("gpt2", "tiny", splits, optimizer_name="adamw", num_epochs=1, batch_size=8)
    assert sum(losses[-4:]) / 4 < 0.9 * by_letter


def test_a_mistyped_dataset_suggests_the_right_one() -> None:
    with pytest.raises(WorkloadError, match="did you mean 'synthetic_image'"):
        load("synthetic_images")


def test_no_samples_cannot_be_trained_on() -> None:
    with pytest.raises(DataError, match="at least 1"):
        load("synthetic_image", 0)
