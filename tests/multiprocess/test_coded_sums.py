"""Sums in a code over real process groups: all workers get the same bits, also of tensors that travel in pieces."""

from datetime import timedelta
from multiprocessing import get_context

import pytest
import torch
import torch.distributed as dist

from potluck.engine.group.coded_sums import CodedSums
from potluck.engine.group.codes import CODES
from potluck.planning.codes import CHUNK

NUM_WORKERS = 3
SIZES = (70, 700_001, 5000, 300_000)
WAIT = timedelta(seconds=30)


def values_of(rank, size):
    return torch.randn(size, generator=torch.Generator().manual_seed(10 * rank + size))


def work(rank, store_file, name, fails_at):
    """One worker: its sums, in the order of SIZES. A peer is gone when the tensor of index `fails_at` comes."""
    torch.set_num_threads(1)
    group = dist.ProcessGroupGloo(dist.FileStore(str(store_file), NUM_WORKERS), rank, NUM_WORKERS, WAIT)
    errors = []
    sums = CodedSums(lambda: group, lambda: WAIT, has_failed=lambda: bool(errors), report=errors.append)
    sums.begin()
    tensors = [values_of(rank, size) for size in SIZES]
    futures = []
    for index, tensor in enumerate(tensors):
        if index == fails_at:
            errors.append(RuntimeError("a peer is gone"))
        futures.append(sums.sum(tensor, CODES[name], is_last=tensor is tensors[-1]))
    ended = [future.wait() for future in futures]
    assert all(one is tensor for one, tensor in zip(ended, tensors, strict=True))
    return [tensor.numpy() for tensor in tensors]


def on_all(store_file, name, fails_at=None):
    with get_context("spawn").Pool(NUM_WORKERS) as pool:
        return pool.starmap(work, [(rank, store_file, name, fails_at) for rank in range(NUM_WORKERS)], chunksize=1)


@pytest.mark.parametrize(("name", "codes"), [("int8", 127), ("int4", 7)])
def test_all_workers_get_the_same_sums(tmp_path, name, codes):
    found = on_all(tmp_path / "store", name)
    for index, size in enumerate(SIZES):
        first, *others = (torch.from_numpy(worker[index]) for worker in found)
        assert all(torch.equal(first, other) for other in others)
        exact = sum(values_of(rank, size) for rank in range(NUM_WORKERS))
        off = torch.nn.functional.pad((first - exact).abs(), (0, -size % CHUNK)).view(-1, CHUNK).amax(1)
        assert off.max() < 12 / codes  # half a code of each worker's largest value, about 4, and of the sum's
        assert off.min() > 0


def test_every_sum_ends_when_a_peer_is_gone(tmp_path):
    """Otherwise a step would wait for ever; it is not committed."""
    assert len(on_all(tmp_path / "store", "int4", fails_at=1)) == NUM_WORKERS
