"""The largest micro-batch: found by trying where memory says no, by reckoning where it would not ask."""

import subprocess
import sys

import pytest

from potluck.core.errors import MeasureError
from potluck.measuring.memory import MemoryCap, find_memory_cap, free_memory_bytes, is_out_of_memory

MEGABYTE = 1 << 20


def device_of(samples):
    def run(size):
        if size > samples:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    return run


@pytest.mark.parametrize(("fits", "cap"), [(1, 1), (5, 4), (40, 32), (63, 32)])
def test_a_full_device_gives_the_last_size_that_fitted(fits, cap):
    assert find_memory_cap(device_of(fits), 64) == cap


def test_no_cap_where_everything_fits():
    assert find_memory_cap(device_of(64), 64) is None


def test_a_model_that_never_fits_says_what_to_do():
    with pytest.raises(MeasureError) as caught:
        find_memory_cap(device_of(0), 64)
    assert "--model-size" in caught.value.fix


def test_other_errors_are_not_taken_for_memory():
    def run(size):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        find_memory_cap(run, 4)


def test_the_cpu_is_never_filled():
    """A sample takes 8 MB here: of a room of 500 MB four fifths may be used, and more is not even tried."""
    tried = []

    def run(size):
        tried.append(size)
        blocks = [bytearray(b"x") * (8 * MEGABYTE) for _ in range(size)]
        del blocks

    cap = find_memory_cap(run, 1024, free_bytes=lambda: 500 * MEGABYTE)
    assert max(tried) <= 50
    assert 40 <= cap <= 50


def test_a_failed_size_is_halved_and_remembered():
    cap = MemoryCap()
    assert cap.halve(48) == 24
    assert cap.halve(24) == 12
    assert cap.halve(40) == 12
    assert cap.cap == 12


def test_every_way_of_saying_out_of_memory_is_known():
    import torch

    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("HIP"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("nothing of the kind"))


def test_free_memory_respects_a_limit():
    free = free_memory_bytes()
    assert 0 < free < 1 << 50
    code = "from potluck.measuring.memory import free_memory_bytes as f; print(f(limit=100 << 20))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 100 * MEGABYTE
