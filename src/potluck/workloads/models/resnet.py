"""Residual networks for small images: He et al. 2015, with a 3x3 stem and no pooling before the stages.

Names of parameters are torchvision's, so torchvision's tools read our checkpoints. BatchNorm depends on how a batch is
split: these models are an exception to the promise that any split gives the result of one process.
"""

from functools import partial

from torch import Tensor, nn

from potluck.workloads.models.spec import ModelSpec
from potluck.workloads.models.tasks import TASKS


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, and a shortcut past them."""

    expansion = 1

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3x3(before, width, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv3x3(width, width)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(before, width * self.expansion, stride)

    def forward(self, features: Tensor) -> Tensor:
        """The sum of the shortcut and the convolutions, through a ReLU."""
        added = self.relu(self.bn1(self.conv1(features)))
        added = self.bn2(self.conv2(added))
        out: Tensor = self.relu(added.add_(self.downsample(features)))
        return out


class Bottleneck(nn.Module):
    """A 1x1 convolution that narrows, a 3x3 convolution, a 1x1 convolution that widens, and a shortcut past them."""

    expansion = 4

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv1x1(before, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv3x3(width, width, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv1x1(width, width * self.expansion)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(before, width * self.expansion, stride)

    def forward(self, features: Tensor) -> Tensor:
        """The sum of the shortcut and the convolutions, through a ReLU."""
        added = self.relu(self.bn1(self.conv1(features)))
        added = self.relu(self.bn2(self.conv2(added)))
        added = self.bn3(self.conv3(added))
        out: Tensor = self.relu(added.add_(self.downsample(features)))
        return out


class ResNet(nn.Module):
    """A stem, four stages of blocks, each but the first halving the image, and a linear layer."""

    def __init__(
        self, num_classes: int, *, block: type[BasicBlock | Bottleneck], depths: tuple[int, int, int, int], width: int
    ) -> None:
        super().__init__()
        self.conv1 = _conv3x3(3, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        out = block.expansion
        self.layer1 = _stage(block, width, width, depths[0], stride=1)
        self.layer2 = _stage(block, width * out, width * 2, depths[1], stride=2)
        self.layer3 = _stage(block, width * 2 * out, width * 4, depths[2], stride=2)
        self.layer4 = _stage(block, width * 4 * out, width * 8, depths[3], stride=2)
        self.fc = nn.Linear(width * 8 * out, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Class scores for images [n, 3, height, width]."""
        features = self.relu(self.bn1(self.conv1(images)))
        features = self.layer4(self.layer3(self.layer2(self.layer1(features))))
        scores: Tensor = self.fc(features.mean((2, 3)))
        return scores


def _conv3x3(before: int, after: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, kernel_size=3, stride=stride, padding=1, bias=False)


def _conv1x1(before: int, after: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, kernel_size=1, stride=stride, bias=False)


def _shortcut(before: int, after: int, stride: int) -> nn.Module:
    if before == after and stride == 1:
        return nn.Identity()
    return nn.Sequential(_conv1x1(before, after, stride), nn.BatchNorm2d(after))


def _stage(block: type[BasicBlock | Bottleneck], before: int, width: int, depth: int, *, stride: int) -> nn.Sequential:
    first = block(before, width, stride)
    return nn.Sequential(first, *(block(width * block.expansion, width, 1) for _ in range(depth - 1)))


def _family(block: type[BasicBlock | Bottleneck], depths: tuple[int, int, int, int]) -> ModelSpec:
    build = partial(ResNet, block=block, depths=depths)
    return ModelSpec(
        reads="image",
        task=TASKS["classification"],
        sizes={"tiny": partial(build, width=8), "small": partial(build, width=16), "base": partial(build, width=64)},
        default_size="base",
    )


RESNET18 = _family(BasicBlock, (2, 2, 2, 2))
RESNET50 = _family(Bottleneck, (3, 4, 6, 3))
