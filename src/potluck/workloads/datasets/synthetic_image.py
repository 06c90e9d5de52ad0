"""Synthetic images that a model can learn: a smooth pattern for each class, with random disturbances.

An image is the sum of its class's pattern, moved by up to three pixels and with a random contrast, a fainter pattern of
another class, a brightness and noise. All arithmetic is on integers, so every machine makes the same bytes.
"""

import torch
from torch import Tensor

from potluck.workloads.datasets.images import Images, Normalisation
from potluck.workloads.datasets.seeds import stream
from potluck.workloads.datasets.splits import DataOptions, Splits, num_held_out

NUM_CLASSES = 10
DEFAULT_NUM_SAMPLES = 10_000
NORMALISATION = Normalisation(mean=(0.5, 0.5, 0.5), std=(0.19, 0.19, 0.19))

SIDE = 32
SHAPE = (3, SIDE, SIDE)
CELLS = 4  # a pattern is interpolated between (CELLS + 1)^2 random points
MOST_MOVED = 3  # pixels
EIGHTHS = 8  # contrasts are counted in eighths
CHUNK = 500  # images made at once, always in whole chunks: the first n are the same for any number of samples


def load_synthetic_image(options: DataOptions) -> Splits:
    """Ten classes of 32x32 images; held-out ones are other draws of the same patterns."""
    num_samples = options.num_samples or DEFAULT_NUM_SAMPLES
    patterns = _moved(_patterns(options.seed))
    return Splits(
        kind="image",
        num_classes=NUM_CLASSES,
        train=_draw(patterns, num_samples, options.seed, "train"),
        held_out=_draw(patterns, num_held_out(num_samples), options.seed, "held-out"),
    )


def _patterns(seed: int) -> Tensor:
    """One smooth pattern for each class, in -64..64: [class, 3, 32, 32]."""
    points = torch.randint(-64, 65, (NUM_CLASSES, 3, CELLS + 1, CELLS + 1), generator=stream(seed, "patterns"))
    position = torch.arange(SIDE) * CELLS * EIGHTHS // (SIDE - 1)
    left = (position // EIGHTHS).clamp(max=CELLS - 1)
    weights = torch.zeros(SIDE, CELLS + 1, dtype=torch.int64)
    rows = torch.arange(SIDE)
    weights[rows, left] = EIGHTHS - (position - left * EIGHTHS)
    weights[rows, left + 1] = position - left * EIGHTHS
    return (weights @ points @ weights.T) // EIGHTHS**2


def _moved(patterns: Tensor) -> Tensor:
    """Every pattern at every place it may be moved to: int16 [class, place, 3, 32, 32]."""
    steps = range(-MOST_MOVED, MOST_MOVED + 1)
    return torch.stack([patterns.roll((dy, dx), (2, 3)) for dy in steps for dx in steps], dim=1).to(torch.int16)


def _draw(patterns: Tensor, count: int, seed: int, split: str) -> Images:
    pixels = torch.empty(count, *SHAPE, dtype=torch.uint8)
    labels = torch.empty(count, dtype=torch.int64)
    for start in range(0, count, CHUNK):
        end = min(start + CHUNK, count)
        made, classes = _draw_chunk(patterns, stream(seed, split, start))
        pixels[start:end], labels[start:end] = made[: end - start], classes[: end - start]
    return Images(pixels, labels, NORMALISATION)


def _draw_chunk(patterns: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    def each(low: int, high: int) -> Tensor:
        return torch.randint(low, high, (CHUNK,), generator=generator)

    def spread(values: Tensor) -> Tensor:
        return values.to(torch.int16).view(-1, 1, 1, 1)

    places = patterns.shape[1]
    classes = each(0, NUM_CLASSES)
    others = (classes + each(1, NUM_CLASSES)) % NUM_CLASSES
    image = patterns[classes, each(0, places)].mul_(spread(each(3, 9)))
    image.add_(patterns[others, each(0, places)].mul_(spread(each(0, 5))))
    image.bitwise_right_shift_(3)  # back from eighths
    image.add_(spread(each(96, 161))).add_(_noise(generator))
    return image.clamp_(0, 255).to(torch.uint8), classes


def _noise(generator: torch.Generator) -> Tensor:
    """Uniform in -64..63. Drawn eight bytes at a time, which is six times as fast as one by one."""
    words = torch.empty(CHUNK, 3, SIDE, SIDE // 8, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return words.view(torch.uint8).to(torch.int16).sub_(128).bitwise_right_shift_(1)
