"""Random draws as a function of where training stands, so that a retry or a resume repeats them."""

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


def seed_all(*parts: int) -> None:
    """Seed torch on every device, `random`, and numpy if the process uses it."""
    seed = mix(*parts)
    torch.manual_seed(seed)
    _seed_host(seed)


def seed_host(*parts: int) -> None:
    """Seed the generators that run on the CPU: what reading one sample can draw from."""
    seed = mix(*parts)
    torch.default_generator.manual_seed(seed)
    _seed_host(seed)


def _seed_host(seed: int) -> None:
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
