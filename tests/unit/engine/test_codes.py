"""Codes for the wire: how near decoded values are, and what stays exact."""

import pytest
import torch

from potluck.engine.group.codes import CODES, UNIT
from potluck.planning.codes import CHUNK

SIZES = [1, CHUNK - 1, CHUNK, 1000, 150_000]


def there_and_back(name, values):
    code = CODES[name]
    coded = torch.zeros(code.num_bytes(values.numel()), dtype=torch.uint8)
    code.encode(values, coded)
    decoded = torch.empty_like(values)
    code.decode(coded, decoded)
    return coded, decoded


@pytest.mark.parametrize(
    ("name", "largest_error", "part"), [("int8", 0.5 / 127, 130 / 512), ("int4", 0.5 / 7, 66 / 512)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_value_is_wrong_by_at_most_half_a_code_of_its_chunk(name, largest_error, part, dtype):
    for size in SIZES:
        values = torch.randn(size, generator=torch.Generator().manual_seed(size)).to(dtype)
        coded, decoded = there_and_back(name, values)
        assert coded.numel() == -(-size // UNIT) * UNIT * 4 * part
        padded = torch.nn.functional.pad((values - decoded).float().abs(), (0, -size % CHUNK)).view(-1, CHUNK)
        largest = torch.nn.functional.pad(values.float().abs(), (0, -size % CHUNK)).view(-1, CHUNK).amax(1)
        slack = 1.02 if dtype is not torch.bfloat16 else 1.2
        assert (padded.amax(1) <= slack * largest_error * largest + 0.004 * largest * (dtype is torch.bfloat16)).all()


@pytest.mark.parametrize("name", CODES)
def test_zeros_stay_zeros_and_tiny_gradients_are_not_lost(name):
    values = torch.randn(1000) * 1e-9
    values[::3] = 0
    _, decoded = there_and_back(name, values)
    assert (decoded[::3] == 0).all()
    assert (decoded - values).norm() < 0.2 * values.norm()
    assert (there_and_back(name, torch.zeros(300))[1] == 0).all()


@pytest.mark.parametrize("name", CODES)
def test_a_gradient_that_is_not_a_number_shows(name):
    values = torch.ones(2 * CHUNK)
    values[3] = float("nan")
    _, decoded = there_and_back(name, values)
    assert decoded[:CHUNK].isnan().any()
    assert not decoded[CHUNK:].isnan().any()


@pytest.mark.parametrize("name", CODES)
def test_adding_is_decoding_and_adding(name):
    values = torch.randn(5 * UNIT)
    coded, decoded = there_and_back(name, values)
    total = torch.ones(5 * UNIT)
    CODES[name].add(coded, total)
    assert torch.allclose(total, decoded + 1, atol=1e-6)
