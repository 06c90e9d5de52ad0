"""What the balance benchmark trains: the bare engine's small CNN, or the model of `potluck train`."""

from collections.abc import Callable

from torch import nn

from benchmarks.ddp_baseline import small_cnn
from potluck.workloads.models.simple_cnn import SIMPLE_CNN

MODELS: dict[str, Callable[[], nn.Module]] = {
    "small_cnn": small_cnn,
    "simple_cnn": lambda: SIMPLE_CNN.sizes["base"](10),
}
