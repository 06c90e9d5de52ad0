"""The models that come with Potluck: a spec each, and the dict that names them."""

from torch import nn

from potluck.core.errors import WorkloadError, did_you_mean
from potluck.workloads.datasets import IMAGE_DATASETS, TEXT_DATASETS, Splits
from potluck.workloads.models.bert import BERT
from potluck.workloads.models.gpt2 import GPT2
from potluck.workloads.models.resnet import RESNET18, RESNET50
from potluck.workloads.models.simple_cnn import SIMPLE_CNN
from potluck.workloads.models.spec import ModelSpec

__all__ = ["MODELS", "ModelSpec", "build_model", "find_model"]

MODELS: dict[str, ModelSpec] = {
    "simple_cnn": SIMPLE_CNN,
    "resnet18": RESNET18,
    "resnet50": RESNET50,
    "bert": BERT,
    "gpt2": GPT2,
}


def find_model(name: str) -> ModelSpec:
    """Find a model by name."""
    if name not in MODELS:
        raise WorkloadError(f"there is no model {name!r}", fix=did_you_mean(name, MODELS))
    return MODELS[name]


def build_model(name: str, size: str | None, splits: Splits) -> nn.Module:
    """Build a model for a dataset, with random parameters from torch's global generator."""
    spec = find_model(name)
    if spec.reads != splits.kind:
        fitting = IMAGE_DATASETS if spec.reads == "image" else TEXT_DATASETS
        raise WorkloadError(
            f"{name} reads {spec.reads} data, and the dataset holds {splits.kind} data",
            fix=f"choose --dataset of: {', '.join(sorted(fitting))}",
        )
    return spec.build(size or spec.default_size, splits.num_classes)
