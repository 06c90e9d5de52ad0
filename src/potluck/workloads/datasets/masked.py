"""Windows of text with some tokens masked, as BERT is trained."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.utils.data import Dataset

from potluck.workloads.datasets.windows import MASK, NUM_BYTES, TextWindows

IGNORED = -100
"""The target of a token that the model need not predict; torch's cross-entropy skips it."""

HIDDEN_SHARE = 0.15


@dataclass(frozen=True, eq=False, repr=False)
class MaskedWindows(Dataset[tuple[Tensor, ...]]):
    """(tokens, targets): 15 % of the tokens are targets, of which 80 % read MASK, 10 % any byte, 10 % are unchanged.

    The draw is from torch's global generator, which Potluck seeds for each sample and epoch: a sample's mask is the
    same on every machine.
    """

    windows: Dataset[tuple[Tensor, ...]]

    def __len__(self) -> int:
        return len(cast("TextWindows", self.windows))

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        (tokens,) = self.windows[index]
        length = len(tokens)
        chance = torch.rand(length)
        # The token with the lowest draw is always masked, so that every window has a target.
        hidden = chance.le(chance.min().clamp(min=HIDDEN_SHARE))
        fate = torch.rand(length)
        read = torch.where(fate < 0.8, MASK, torch.where(fate < 0.9, torch.randint(NUM_BYTES, (length,)), tokens))
        return torch.where(hidden, read, tokens), torch.where(hidden, tokens, IGNORED)
