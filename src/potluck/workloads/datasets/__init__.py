"""The datasets that come with Potluck: one function each, and the dict that names them."""

from collections.abc import Callable

from potluck.core.errors import DataError, WorkloadError, did_you_mean
from potluck.workloads.datasets.cifar import load_cifar10, load_cifar100
from potluck.workloads.datasets.splits import DataOptions, Splits
from potluck.workloads.datasets.synthetic_image import load_synthetic_image
from potluck.workloads.datasets.synthetic_text import load_synthetic_text
from potluck.workloads.datasets.text import load_text

__all__ = ["DATASETS", "IMAGE_DATASETS", "TEXT_DATASETS", "DataOptions", "Splits", "load_dataset"]

Loader = Callable[[DataOptions], Splits]

IMAGE_DATASETS: dict[str, Loader] = {
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "synthetic_image": load_synthetic_image,
}
TEXT_DATASETS: dict[str, Loader] = {
    "synthetic_text": load_synthetic_text,
    "text": load_text,
}
DATASETS: dict[str, Loader] = {**IMAGE_DATASETS, **TEXT_DATASETS}


def load_dataset(name: str, options: DataOptions) -> Splits:
    """Load a dataset by name."""
    if name not in DATASETS:
        raise WorkloadError(f"there is no dataset {name!r}", fix=did_you_mean(name, DATASETS))
    if options.num_samples is not None and options.num_samples < 1:
        raise DataError(
            f"a run cannot train on {options.num_samples} samples", fix="choose --num-samples of at least 1"
        )
    return DATASETS[name](options)
