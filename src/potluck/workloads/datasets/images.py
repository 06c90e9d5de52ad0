"""Labelled images kept in memory as bytes, normalised a batch at a time."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils.data import Dataset


@dataclass(frozen=True, slots=True)
class Normalisation:
    """Mean and standard deviation of each channel, of pixels between 0 and 1."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


@dataclass(frozen=True, eq=False, repr=False)
class Images(Dataset[tuple[Tensor, ...]]):
    """Samples (image float32 [3, 32, 32], label int64); (pixel / 255 - mean) / std is one multiply and one add."""

    pixels: Tensor  # uint8 [n, 3, 32, 32]
    labels: Tensor  # int64 [n]
    normalisation: Normalisation
    _scale: Tensor = field(init=False)
    _offset: Tensor = field(init=False)

    def __post_init__(self) -> None:
        mean = torch.tensor(self.normalisation.mean).view(3, 1, 1)
        std = torch.tensor(self.normalisation.std).view(3, 1, 1)
        object.__setattr__(self, "_scale", 1 / (255 * std))
        object.__setattr__(self, "_offset", -mean / std)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._normalised(self.pixels[index]), self.labels[index]

    def potluck_batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Whole batches at once: (images float32 [n, 3, 32, 32], labels int64 [n])."""
        return self._normalised(self.pixels.index_select(0, indices)), self.labels.index_select(0, indices)

    def _normalised(self, pixels: Tensor) -> Tensor:
        return pixels.float().mul_(self._scale).add_(self._offset)
