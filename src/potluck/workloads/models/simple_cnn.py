"""A small convolutional network that keeps Potluck's promise: any split of a batch gives the result of one process."""

from functools import partial
from itertools import pairwise

from torch import Tensor, nn

from potluck.workloads.models.spec import ModelSpec
from potluck.workloads.models.tasks import TASKS

NUM_GROUPS = 8


class SimpleCNN(nn.Module):
    """Blocks that each halve the image, and a linear layer over the mean of the last features."""

    def __init__(self, num_classes: int, *, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(_block(before, after) for before, after in pairwise((3, *widths))))
        self.head = nn.Linear(widths[-1], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores for images [n, 3, height, width]."""
        features: Tensor = self.blocks(images)
        scores: Tensor = self.head(features.mean((2, 3)))
        return scores


def _block(before: int, after: int) -> nn.Sequential:
    # GroupNorm looks at one sample at a time, so unlike BatchNorm it doesn't depend on how a batch is split.
    # It comes after pooling, where it has a quarter of the work.
    return nn.Sequential(
        nn.Conv2d(before, after, kernel_size=3, padding=1),
        nn.MaxPool2d(2),
        nn.GroupNorm(NUM_GROUPS, after),
        nn.ReLU(inplace=True),
    )


SIMPLE_CNN = ModelSpec(
    reads="image",
    task=TASKS["classification"],
    sizes={
        "tiny": partial(SimpleCNN, widths=(8, 16, 32, 32)),
        "small": partial(SimpleCNN, widths=(16, 32, 64, 128)),
        "base": partial(SimpleCNN, widths=(32, 64, 128, 256)),
    },
    default_size="base",
)
