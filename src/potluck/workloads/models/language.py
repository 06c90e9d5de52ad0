"""Networks of the `transformers` library, built from a config with random parameters."""

from importlib import import_module
from typing import Any

from torch import Tensor, nn

from potluck.core.errors import WorkloadError
from potluck.core.pip_lines import install_extra

DROPOUT = 0.0
"""0.1 in the papers; none here, since the random draws of dropout depend on how a batch is split."""


class Logits(nn.Module):
    """A language model of the `transformers` library that takes only tokens and returns only logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [n, length, vocabulary] for tokens [n, length]."""
        logits: Tensor = self.network(input_ids=tokens).logits
        return logits


def load_library() -> Any:
    """The `transformers` library, imported only when a model needs it: the import takes seconds and may be missing."""
    try:
        return import_module("transformers")
    except ImportError as error:
        raise WorkloadError(
            f"the text models need the transformers library: {error}",
            fix=install_extra("text"),
        ) from error
