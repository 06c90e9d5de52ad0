"""Every built-in model under the built-in trainer, with and without gradient checkpointing."""

import json
import math

import pytest
import torch

from potluck.core.settings import make_settings
from potluck.engine.compute.gradient_checkpointing import checkpoint_blocks
from potluck.workloads.datasets import DataOptions, load_dataset
from potluck.workloads.models import MODELS, build_model
from potluck.workloads.trainer import complete, train


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_takes_three_steps(workplace, model, checkpointing):
    settings = make_settings(
        {
            "model": model,
            "model_size": next(iter(MODELS[model].sizes)),
            "num_samples": 24,
            "global_batch": 8,
            "micro_batch": 5,
            "max_steps": 3,
            "gradient_checkpointing": checkpointing,
            "experiment_name": "short",
            "device": "cpu",
        }
    )
    outcome = train(complete(settings, data_dir=workplace / "data"), runs_dir=workplace)
    summary = json.loads((outcome.folder / "logs" / "rank_0_metrics.json").read_text())
    assert (summary["state"], summary["step"]) == ("finished", 3)
    assert math.isfinite(summary["loss"])
    assert set(outcome.scores) == {"loss", "accuracy"}


@pytest.mark.parametrize("model", MODELS)
def test_checkpointed_and_ordinary_gradients_agree(workplace, model):
    spec = MODELS[model]
    options = DataOptions(data_dir=workplace, num_samples=8, seed=0)
    splits = load_dataset(f"synthetic_{spec.reads}", options)
    torch.manual_seed(0)
    batch = torch.utils.data.default_collate([spec.task.view(splits.train)[index] for index in range(6)])
    batch = [part.double() if part.is_floating_point() else part for part in batch]

    def gradients(*, checkpointing):
        torch.manual_seed(0)
        built = build_model(model, next(iter(spec.sizes)), splits).double()
        if checkpointing:
            assert checkpoint_blocks(built) >= 2
        spec.task.loss(built, *batch)[0].backward()
        return {name: parameter.grad for name, parameter in built.named_parameters()}

    ordinary, checkpointed = gradients(checkpointing=False), gradients(checkpointing=True)
    assert ordinary.keys() == checkpointed.keys()
    for name, gradient in ordinary.items():
        assert torch.allclose(gradient, checkpointed[name], rtol=1e-9, atol=1e-12), name


def test_open_choices_are_made_before_the_run_is_recorded(workplace):
    settings = complete(make_settings({"model": "gpt2", "batch_size": 16, "optimizer": "adamw"}), data_dir=workplace)
    assert (settings.dataset, settings.global_batch, settings.batch_size) == ("synthetic_text", 16, None)
    assert (settings.learning_rate, settings.model_size) == (1e-3, MODELS["gpt2"].default_size)
