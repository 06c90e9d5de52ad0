"""Codes for the wire: float values as 8-bit or 4-bit integers, with one scale for every 128 values.

A chunk of 128 values is divided by its scale, which is the largest magnitude in the chunk over the largest code, and
rounded. Codes are symmetric, so that zero stays exactly zero: Adam would blow up tiny errors in gradients that are
zero, such as those of words that a batch does not contain. Scales are bfloat16, which has float32's range.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from potluck.planning.codes import CHUNK, SCALE_BYTES

UNIT = 2 * CHUNK
"""A code has room for a multiple of this many values."""
_ROWS = 1024  # chunks coded at a time: intermediate results stay in the processor's cache
_SMALLEST = 1e-30  # a chunk of zeros must not divide by zero
_ROUND_UP = 1 + 2.0**-8  # bfloat16 may round a scale down, and the largest value would not fit


class ChunkCode:
    """Values as integers of `bits` bits, 8 or 4, and a scale a chunk.

    A byte of a 4-bit code holds a value of the first half of all chunks, and 16 times one of the second half.
    """

    def __init__(self, bits: int) -> None:
        self._largest = (1 << (bits - 1)) - 1
        self._is_packed = bits == 4
        self._unit_bytes = UNIT * bits // 8 + 2 * SCALE_BYTES

    def num_bytes(self, num_values: int) -> int:
        """Bytes of that many values as `encode` writes them."""
        return -(-num_values // UNIT) * self._unit_bytes

    def encode(self, values: Tensor, coded: Tensor) -> None:
        """Write the code of the values, a flat tensor of floats, into `coded`, a flat tensor of bytes."""
        scales, codes = self._parts(coded)
        chunks = _filled_up(values.float(), CHUNK * len(scales)).view(-1, CHUNK)
        room = torch.empty(2, min(_ROWS, len(codes)), CHUNK)
        for first in range(0, len(codes), _ROWS):
            rows = slice(first, min(first + _ROWS, len(codes)))
            rounded = self._rounded(chunks[rows], scales[rows], room[0])
            if self._is_packed:
                partners = slice(rows.start + len(codes), rows.stop + len(codes))
                rounded.add_(self._rounded(chunks[partners], scales[partners], room[1]), alpha=16)
            codes[rows] = rounded

    def decode(self, coded: Tensor, values: Tensor) -> None:
        """Replace the values by those that `coded` stands for."""
        scales, codes = self._parts(coded)
        size = CHUNK * len(scales)
        fits = values.numel() == size and values.dtype == torch.float32
        decoded = values if fits else torch.empty(size)
        chunks = decoded.view(-1, CHUNK)
        for rows, codes_of_rows in self._unpacked(codes):
            torch.mul(codes_of_rows, scales[rows].float(), out=chunks[rows])
        if not fits:
            values.copy_(decoded[: values.numel()])

    def add(self, coded: Tensor, values: Tensor) -> None:
        """Add the values that `coded` stands for to as many float32 values as the code has room for."""
        scales, codes = self._parts(coded)
        chunks = values.view(-1, CHUNK)
        for rows, codes_of_rows in self._unpacked(codes):
            chunks[rows].addcmul_(codes_of_rows, scales[rows].float())

    def _parts(self, coded: Tensor) -> tuple[Tensor, Tensor]:
        """The scales, one a chunk, and the codes in rows of bytes."""
        num_chunks = 2 * (coded.numel() // self._unit_bytes)
        split = num_chunks * SCALE_BYTES
        return coded[:split].view(torch.bfloat16).view(-1, 1), coded[split:].view(torch.int8).view(-1, CHUNK)

    def _rounded(self, chunks: Tensor, scales: Tensor, room: Tensor) -> Tensor:
        """Set the scales of these chunks, and divide the chunks by their scales."""
        room = room[: len(chunks)]
        factors = torch.abs(chunks, out=room).amax(1, keepdim=True)
        scales.copy_(factors.mul_(_ROUND_UP / self._largest).clamp_min_(_SMALLEST))
        return torch.mul(chunks, factors.copy_(scales).reciprocal_(), out=room).round_()

    def _unpacked(self, codes: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Rows of chunks, and their codes as floats, which are overwritten by the next ones."""
        room = torch.empty(2, min(_ROWS, len(codes)), CHUNK)
        for first in range(0, len(codes), _ROWS):
            rows = slice(first, min(first + _ROWS, len(codes)))
            low, high = room[:, : rows.stop - rows.start]
            low.copy_(codes[rows])
            if self._is_packed:
                torch.mul(low, 1 / 16, out=high).round_()
                yield slice(rows.start + len(codes), rows.stop + len(codes)), high
                low.sub_(high, alpha=16)
            yield rows, low


def _filled_up(values: Tensor, size: int) -> Tensor:
    """The values, with zeros after them if they are fewer than `size`."""
    return values if values.numel() == size else torch.cat([values, values.new_zeros(size - values.numel())])


CODES = {"int8": ChunkCode(8), "int4": ChunkCode(4)}
