"""Measures how fast this machine codes gradients, against the seconds that planning/codes.py has."""

import time

import torch

from potluck.planning.codes import CHUNK

_NUM_VALUES = 1 << 20
_NUM_CHUNKS = 1024  # stay in a processor's cache
_MEASURED_S = 0.4  # a container's CPU quota lets a shorter burst run at full speed
_USUAL_PASS_S = 4.8e-9 * _NUM_VALUES  # on the processor on which planning/codes.py was measured


def measure_coding() -> float:
    """How much longer coding takes here than planning/codes.py says: 1 on the processor on which that was measured."""
    values = torch.linspace(-1.0, 1.0, _NUM_VALUES).view(-1, CHUNK)
    codes, read = torch.zeros(values.shape, dtype=torch.int8), torch.zeros_like(values)
    _code_once(values, codes, read)
    num_passes, began_s = 0, time.perf_counter()
    while time.perf_counter() - began_s < _MEASURED_S:
        _code_once(values, codes, read)
        num_passes += 1
    return (time.perf_counter() - began_s) / num_passes / _USUAL_PASS_S


def _code_once(values: torch.Tensor, codes: torch.Tensor, read: torch.Tensor) -> None:
    """Write values as integers with a scale for each chunk, and read them back."""
    for start in range(0, len(values), _NUM_CHUNKS):
        rows = slice(start, start + _NUM_CHUNKS)
        scales = values[rows].abs().amax(1, keepdim=True).div_(127)
        codes[rows] = torch.div(values[rows], scales.clamp_min_(1e-30)).round_()
        read[rows] = codes[rows].float().mul_(scales)
