"""Networks of the `transformers` library, built from a config with random parameters."""

from importlib import import_module
from typing import Any

from torch import Tensor, nn

from potluck.core.errors import WorkloadError

DROPOUT = 0.0
"""Published as 0.1; none here, since a random draw depends on how a batch is split."""


class Logits(nn.Module):
    """A language model of the library that takes tokens and returns logits, and nothing else."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [n, length, vocabulary] for tokens [n, length]."""
        logits: Tensor = self.network(input_ids=tokens).logits
        return logits


def load_library() -> Any:
    """The library, imported when a model needs it: it takes seconds, and is an extra."""
    try:
        return import_module("transformers")
    except ImportError as error:
        raise WorkloadError(
            f"the text models need the transformers library: {error}",
            fix="pip install transformers",
        ) from error
