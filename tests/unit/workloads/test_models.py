"""Every model builds at every size, trains, and says what is wrong when it cannot."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from potluck.core.errors import WorkloadError
from potluck.workloads.datasets import DataOptions, Splits, load_dataset
from potluck.workloads.models import MODELS, build_model, find_model

BATCH_NORM_FREE = ["simple_cnn", "bert", "gpt2"]


@pytest.fixture(scope="module")
def splits() -> dict[str, Splits]:
    options = DataOptions(data_dir=Path("unused"), num_samples=16, seed=0)
    return {kind: load_dataset(f"synthetic_{kind}", options) for kind in ("image", "text")}


def smallest(name: str, splits: dict[str, Splits]) -> nn.Module:
    torch.manual_seed(0)
    spec = find_model(name)
    return build_model(name, next(iter(spec.sizes)), splits[spec.reads])


def first_samples(name: str, splits: dict[str, Splits], count: int) -> list[Tensor]:
    spec = find_model(name)
    torch.manual_seed(1)
    view = spec.task.view(splits[spec.reads].train)
    batch: list[Tensor] = default_collate([view[index] for index in range(count)])
    return batch


@pytest.mark.parametrize("name", MODELS)
def test_three_steps_at_the_smallest_size_lower_the_loss(name: str, splits: dict[str, Splits]) -> None:
    model = smallest(name, splits)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    batch = first_samples(name, splits, 8)
    losses = []
    for _ in range(3):
        loss, _ = MODELS[name].task.loss(model, *batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(torch.isfinite(torch.tensor(losses)))
    assert losses[-1] < losses[0]
    assert [key for key, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("simple_cnn", 391_946),
        ("resnet18", 11_173_962),
        ("resnet50", 23_520_842),
        ("bert", 86_240_513),
        ("gpt2", 86_039_808),
    ],
)
def test_the_default_size_is_the_known_one(name: str, count: int, splits: dict[str, Splits]) -> None:
    with torch.device("meta"):
        model = build_model(name, None, splits[MODELS[name].reads])
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize("name", MODELS)
def test_sizes_are_listed_smallest_first(name: str, splits: dict[str, Splits]) -> None:
    spec = MODELS[name]
    with torch.device("meta"):
        models = [build_model(name, size, splits[spec.reads]) for size in spec.sizes]
    counts = [sum(parameter.numel() for parameter in model.parameters()) for model in models]
    assert counts == sorted(counts)
    assert spec.default_size in spec.sizes


@pytest.mark.parametrize("name", BATCH_NORM_FREE)
def test_an_uneven_split_gives_the_gradient_of_the_whole_batch(name: str, splits: dict[str, Splits]) -> None:
    model, task = smallest(name, splits).double(), MODELS[name].task
    batch = [part.double() if part.is_floating_point() else part for part in first_samples(name, splits, 8)]

    def gradient(parts: list[list[Tensor]]) -> Tensor:
        """sum_i n_i * mean_i / sum_i n_i, as Potluck weighs the parts of a batch."""
        model.zero_grad()
        total = 0
        for part in parts:
            loss, count = task.loss(model, *part)
            (loss * count).backward()
            total += int(count)
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]) / total

    whole = gradient([batch])
    split = gradient([[part[:1] for part in batch], [part[1:4] for part in batch], [part[4:] for part in batch]])
    torch.testing.assert_close(split, whole, rtol=1e-10, atol=1e-12)


def blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost composite modules with parameters that stand in a Sequential or ModuleList."""
    for child in module.children():
        composite = any(True for _ in child.children()) and any(True for _ in child.parameters())
        if composite and isinstance(module, nn.Sequential | nn.ModuleList):
            yield child
        else:
            yield from blocks(child)


@pytest.mark.parametrize(
    ("name", "count"), [("simple_cnn", 4), ("resnet18", 8), ("resnet50", 16), ("bert", 2), ("gpt2", 2)]
)
def test_blocks_can_be_found_for_gradient_checkpointing(name: str, count: int, splits: dict[str, Splits]) -> None:
    assert len(list(blocks(smallest(name, splits)))) == count


def test_the_same_seed_builds_the_same_model(splits: dict[str, Splits]) -> None:
    for name in MODELS:
        one, other = smallest(name, splits).state_dict(), smallest(name, splits).state_dict()
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_mistyped_model_suggests_the_right_one() -> None:
    with pytest.raises(WorkloadError, match="did you mean 'resnet18'") as raised:
        find_model("resnet-18")
    assert "simple_cnn" in raised.value.fix


def test_a_mistyped_size_suggests_the_right_one(splits: dict[str, Splits]) -> None:
    with pytest.raises(WorkloadError, match="did you mean 'tiny'"):
        build_model("simple_cnn", "tinny", splits["image"])


@pytest.mark.parametrize(
    ("name", "kind", "fitting"),
    [("gpt2", "image", "synthetic_text, text"), ("resnet18", "text", "cifar10, cifar100, synthetic_image")],
)
def test_a_dataset_of_the_other_kind_names_those_that_fit(
    name: str, kind: str, fitting: str, splits: dict[str, Splits]
) -> None:
    with pytest.raises(WorkloadError) as raised:
        build_model(name, None, splits[kind])
    assert raised.value.fix == f"choose --dataset of: {fitting}"


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_without_transformers_the_fix_is_to_install_it(
    name: str, splits: dict[str, Splits], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(WorkloadError) as raised:
        build_model(name, "tiny", splits["text"])
    assert "-m pip install 'transformers>=" in raised.value.fix


def test_importing_the_registries_leaves_transformers_alone() -> None:
    code = "import sys, potluck.workloads.models; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
