"""Text as windows of a fixed length over a vocabulary of bytes."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

NUM_BYTES = 256
MASK = NUM_BYTES
"""The token that stands in the place of a masked token."""

VOCABULARY_SIZE = NUM_BYTES + 1
WINDOW = 128
"""Tokens in a sample."""


@dataclass(frozen=True, eq=False, repr=False)
class TextWindows(Dataset[tuple[Tensor, ...]]):
    """Consecutive windows of a text, kept as bytes and handed out as token numbers."""

    text: Tensor  # uint8 [windows, WINDOW]

    def __len__(self) -> int:
        return len(self.text)

    def __getitem__(self, index: int) -> tuple[Tensor]:
        return (self.text[index].long(),)

    def potluck_batch(self, indices: Tensor) -> tuple[Tensor]:
        """Whole batches at once: (tokens int64 [n, WINDOW],)."""
        return (self.text.index_select(0, indices).long(),)


def cut_windows(text: bytes) -> Tensor:
    """All whole windows of a text; a shorter rest at the end is dropped."""
    num_windows = len(text) // WINDOW
    if num_windows == 0:
        return torch.empty(0, WINDOW, dtype=torch.uint8)
    # A bytearray, because torch warns of memory that cannot be written to.
    return torch.frombuffer(bytearray(text[: num_windows * WINDOW]), dtype=torch.uint8).view(-1, WINDOW)
