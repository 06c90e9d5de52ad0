"""How fast devices train relative to each other, from public measurements: for machines that nobody has measured yet.

The unit is an RTX 3090 in fp32. Models differ by tens of percent in how they use a card, so a figure is a first guess
with its doubt, and every machine that was measured corrects it (measuring.imagined).

Sources:
- LAMBDA: ResNet-50 in PyTorch with synthetic images, images/s of one card, in the repository of Lambda's benchmark,
  https://github.com/lambdal/deeplearning-benchmark: pytorch/results/*/PyTorch_resnet50_FP32 and _AMP, where a 3090 does
  472 and 796 images/s, and for newer cards pytorch/pytorch-train-throughput-fp32.csv and -fp16.csv, with 513 and 905.
- LAMBDA_2080: images/s of ResNet-50 in fp32, https://lambdalabs.com/blog/2080-ti-deep-learning-benchmarks
- APXML: seconds of the same small CNN in PyTorch on processors and cards,
  https://apxml.com/posts/nvidia-gpu-vs-macos-metal-gpu-benchmark; joined to the cards above by its A100.
- SPECPICKS: an RTX 3060 against a T4, https://specpicks.com/reviews/best-budget-gpu-cnn-image-model-training-2026
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from potluck.core.cards import short_name

_ALIKE, _CARD, _ROUGH, _CORE = 0.15, 0.25, 0.35, 0.5
_LAMBDA, _LAMBDA_2080, _APXML, _SPECPICKS = "LAMBDA", "LAMBDA_2080", "APXML", "SPECPICKS"


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """One device's speed in training, as a part of an RTX 3090's in fp32."""

    name: str
    fp32: float
    mixed: float | None
    """In fp16 or bf16; None where nobody published it."""
    source: str
    doubt: float = _CARD
    """The relative error of a prediction from this figure alone."""
    is_card: bool = True

    def speed(self, precision: str) -> float:
        """The relative speed in this precision."""
        return self.fp32 if precision == "no" else self.mixed or self.fp32


CARDS = (
    DeviceSpeed("GTX 1080 Ti", 0.416, 0.482, _LAMBDA),
    DeviceSpeed("RTX 2070 Max-Q", 0.288, 0.551, _LAMBDA),
    DeviceSpeed("RTX 2080 Max-Q", 0.310, 0.616, _LAMBDA),
    DeviceSpeed("RTX 2080", 0.422, None, _LAMBDA_2080),
    DeviceSpeed("RTX 2080 Ti", 0.583, 1.121, _LAMBDA),
    DeviceSpeed("TITAN RTX", 0.651, 1.369, _LAMBDA),
    DeviceSpeed("Quadro RTX 5000", 0.452, 0.935, _LAMBDA),
    DeviceSpeed("Quadro RTX 6000", 0.640, 1.370, _LAMBDA),
    DeviceSpeed("RTX 3060", 0.36, None, _SPECPICKS, _ROUGH),
    DeviceSpeed("RTX 3070", 0.522, 0.887, _LAMBDA),
    DeviceSpeed("RTX 3080", 0.816, 1.354, _LAMBDA),
    DeviceSpeed("RTX 3080 Max-Q", 0.409, 0.742, _LAMBDA),
    DeviceSpeed("RTX 3090", 1.0, 1.688, _LAMBDA),
    DeviceSpeed("RTX 4060 Ti", 0.378, None, _APXML, _ROUGH),
    DeviceSpeed("RTX 4090", 1.405, 2.536, _LAMBDA),
    DeviceSpeed("RTX A4000", 0.542, 0.966, _LAMBDA),
    DeviceSpeed("RTX A5000", 0.860, 1.495, _LAMBDA),
    DeviceSpeed("RTX A6000", 0.928, 1.651, _LAMBDA),
    DeviceSpeed("RTX 6000 Ada", 1.261, 2.234, _LAMBDA),
    DeviceSpeed("T4", 0.29, None, _APXML, _ROUGH),
    DeviceSpeed("A10", 0.680, 1.244, _LAMBDA),
    DeviceSpeed("V100", 0.782, 1.781, _LAMBDA),
    DeviceSpeed("A100", 1.577, 2.368, _LAMBDA),
    DeviceSpeed("H100", 3.690, 5.430, _LAMBDA),
)
_A_CORE = 0.0009  # a Ryzen 9 5950X has 16 of 0.00088, Colab's free machine 2 of 0.00097
_CORES = {"m1": 0.0014, "m3": 0.00185}
_OTHER_CARD = {"ti", "super", "max", "ada", "d", "g", "s", "x", "xt", "gre"}  # after a card's name: another card
_MOST_CLOSE = 6
_NUM_CORES = re.compile(r"(\d+(?:\.\d+)?)[ -]?cores?\b", re.IGNORECASE)


def find_speed(specification: str) -> DeviceSpeed | None:
    """The speed of a device as people or drivers name it: RTX 3060, NVIDIA A100-SXM4-40GB, 8-core laptop."""
    cores = _NUM_CORES.search(specification)
    if cores and not float(cores[1]):
        return None
    if cores:
        words = specification.lower().split()
        each = next((speed for word, speed in _CORES.items() if word in words), _A_CORE)
        return DeviceSpeed(specification, float(cores[1]) * each, None, _APXML, _CORE, is_card=False)
    wanted = _tokens(specification)
    known = [card for card in CARDS if _names(_tokens(card.name), wanted)]
    return max(known, key=lambda card: len(card.name), default=None)


def close_to(specification: str) -> list[str]:
    """Cards whose names are like this text: those that begin like it, else those that differ by a few letters."""
    wanted = _letters(short_name(specification))
    names = {_letters(card.name): card.name for card in CARDS}
    same = [name for letters, name in names.items() if wanted and letters.startswith(wanted)]
    alike = get_close_matches(wanted, names, n=_MOST_CLOSE, cutoff=0.6)
    return (same or [names[letters] for letters in alike])[:_MOST_CLOSE]


def _tokens(name: str) -> list[str]:
    """The words and the numbers of a card's name: RTX3080Ti is rtx, 3080, ti; a card of a laptop is a Max-Q."""
    text = re.sub(r"\b(?:laptop|mobile)\b", "max q", short_name(name).lower())
    return re.findall(r"[a-z]+|\d+", text)


def _names(card: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether these words name the card, and not another one whose name only begins in the same way."""
    ends = [at + len(card) for at in range(len(wanted) - len(card) + 1) if wanted[at : at + len(card)] == card]
    return any(end == len(wanted) or wanted[end] not in _OTHER_CARD for end in ends)


def doubt_between(one: DeviceSpeed, other: DeviceSpeed) -> float:
    """The relative error of a prediction of one device from a measurement of another."""
    if one.is_card != other.is_card:
        return 0.6  # between processors and cards the model decides: a factor of two is not rare
    if not one.is_card:
        return _ALIKE if _family(one.name) == _family(other.name) else _CORE
    return _ALIKE if one.name == other.name else max(one.doubt, other.doubt)


def _family(specification: str) -> str:
    """The processor without the number of its cores."""
    return " ".join(_NUM_CORES.sub("", specification).lower().split())


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
