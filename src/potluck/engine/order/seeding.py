"""Random seeds as a function of the training position, so that a retry or a resume repeats the same draws."""

import random
import sys

import torch

_MASK = (1 << 64) - 1


def mix(*parts: int) -> int:
    """One 64-bit seed from several integers (SplitMix64 over each part in turn)."""
    state = 0
    for part in parts:
        state = (state + part + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def seed_all(device: torch.device, *parts: int) -> None:
    """Seed every random generator that a training step on this device can use."""
    seed_host(*parts)
    if device.type != "cpu":
        # torch.manual_seed would do, but spends 150 us on devices that are not used.
        torch.get_device_module(device).manual_seed(mix(*parts))


def seed_host(*parts: int) -> None:
    """Seed torch's CPU generator, `random`, and numpy if the process uses it."""
    seed = mix(*parts)
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
