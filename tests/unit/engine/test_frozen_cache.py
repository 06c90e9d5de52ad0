"""Frozen parameters on disk: found by digest, checked, and removed when there is no room."""

import os

import pytest
import torch

from potluck.engine.compute.frozen_cache import FrozenCache
from potluck.engine.compute.tensor_bytes import digest_of


def fill(cache, *tensors):
    cache.keep({digest_of([one]): one for one in tensors})
    cache.close()


def has(cache, tensor):
    return cache.has(digest_of([tensor]), tensor.nbytes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_what_is_kept_is_read_back(tmp_path, dtype):
    cache, values = FrozenCache(tmp_path / "new" / "frozen"), torch.arange(35).reshape(5, 7).to(dtype)
    fill(cache, values)
    room = torch.empty(5, 7, dtype=dtype)
    assert has(cache, values)
    assert cache.read(digest_of([values]), room)
    assert torch.equal(room, values)
    assert [file.name for file in cache.folder.iterdir()] == [digest_of([values])]


def test_a_damaged_file_is_removed(tmp_path):
    cache, values = FrozenCache(tmp_path), torch.arange(9.0)
    fill(cache, values)
    (tmp_path / digest_of([values])).write_bytes(torch.ones(9).numpy().tobytes())
    assert not cache.read(digest_of([values]), torch.empty(9))
    assert not has(cache, values)
    assert not cache.read(digest_of([values]), torch.empty(9))


def test_only_digests_become_paths_and_only_true_ones_are_kept(tmp_path):
    cache = FrozenCache(tmp_path / "frozen")
    (tmp_path / "secret").write_bytes(bytes(8))
    assert not cache.has("../secret", 8)
    cache.keep({"../planted": torch.ones(2), "0" * 16: torch.ones(2)})
    cache.close()
    assert not list((tmp_path / "frozen").iterdir())
    assert not (tmp_path / "planted").exists()


def test_the_longest_unused_goes_first(tmp_path):
    cache = FrozenCache(tmp_path, limit_bytes=100)
    first, second, third = (torch.full((10,), float(number)) for number in range(3))
    for age, one in enumerate((second, first)):
        fill(cache, one)
        os.utime(tmp_path / digest_of([one]), (1000 + age, 1000 + age))
    assert cache.read(digest_of([second]), torch.empty(10))  # used just now
    fill(cache, third)
    assert [has(cache, one) for one in (first, second, third)] == [False, True, True]
    large = torch.ones(26)
    fill(cache, large)
    assert [has(cache, one) for one in (second, third, large)] == [True, True, False]


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path):
    (tmp_path / "frozen").write_text("a file in its place")
    cache = FrozenCache(tmp_path / "frozen")
    fill(cache, torch.ones(3))
    assert not has(cache, torch.ones(3))
