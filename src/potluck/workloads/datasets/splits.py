"""What a dataset's loader takes (DataOptions) and returns (Splits)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor
from torch.utils.data import Dataset

from potluck.core.errors import DataError

Kind = Literal["image", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """Which data a run asks for."""

    data_dir: Path
    """Where files are kept; for `text`, the user's own file or a folder of .txt files."""

    num_samples: int | None
    """Training samples; None means the dataset's own size."""

    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """Samples to train on, and samples that training never sees."""

    kind: Kind
    num_classes: int  # the vocabulary's size for text
    train: Dataset[tuple[Tensor, ...]]
    held_out: Dataset[tuple[Tensor, ...]]


def num_held_out(num_samples: int) -> int:
    """A fifth of the training samples, but at least 500: with fewer an accuracy means nothing."""
    return max(500, num_samples // 5)


def take(name: str, available: int, num_samples: int | None) -> int:
    """How many of the available training samples a run takes; refuses more than there are."""
    if num_samples is not None and num_samples > available:
        raise DataError(
            f"{name} has {available} training samples, {num_samples} were asked for",
            fix=f"choose --num-samples of at most {available}, or leave it out to take them all",
        )
    return available if num_samples is None else num_samples
