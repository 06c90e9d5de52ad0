import random

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from potluck.engine.data.fetching import FetchAhead, FetchNow, Samples, to_device
from potluck.engine.order.position import DataOrder, Slice
from tests.training import largest_difference, make_data, train


class Noisy(Dataset):
    """A user's dataset with random augmentation."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index, torch.rand(()) + random.random(), torch.tensor(float(index))


class Whole(Noisy):
    def potluck_batch(self, indices):
        return (indices, indices * 2)


def slices(order, first):
    yield first
    for step in range(first.step + 1, 100):
        yield Slice(step, 0, order.batch_of(step))


def test_a_dataset_that_gives_whole_batches_is_asked_once():
    indices = [3, 1]
    assert [part.tolist() for part in Samples(Whole(), 0, None)[0, indices]] == [[3, 1], [6, 2]]
    tensors = TensorDataset(torch.arange(10) * 10)
    assert Samples(tensors, 0, None)[0, indices][0].tolist() == [30, 10]


def test_a_collate_function_gets_the_samples():
    batch = Samples(TensorDataset(torch.arange(10)), 0, lambda samples: [int(sample[0]) for sample in samples])
    assert batch[0, [4, 2]] == [4, 2]


def test_augmentation_depends_on_seed_epoch_and_sample_alone():
    samples = Samples(Noisy(), 9, None)
    alone = samples[2, [7]][1]
    among_others = samples[2, [1, 7, 5]][1][1]
    assert alone == among_others
    assert samples[3, [7]][1] != alone
    assert Samples(Noisy(), 8, None)[2, [7]][1] != alone


@pytest.mark.parametrize("num_workers", [1, 2])
def test_reading_ahead_gives_the_same_batches(num_workers):
    order = DataOrder(40, 16, seed=1)
    now = FetchNow(Samples(Noisy(), 1, None), order)
    ahead = FetchAhead(
        Samples(Noisy(), 1, None),
        order,
        num_workers=num_workers,
        upcoming=lambda first: slices(order, first),
        pin_memory=False,
    )
    # In order, then a retry of the same step, then a jump (a resume), then another split of the same step.
    wanted = [
        *(Slice(step, 0, order.batch_of(step)) for step in (0, 1, 2, 2, 3, 17, 18)),
        Slice(18, 0, 5),
        Slice(18, 5, 16),
    ]
    try:
        for part in wanted:
            for mine, theirs in zip(now.fetch(part), ahead.fetch(part), strict=True):
                assert torch.equal(mine, theirs)
    finally:
        ahead.close()


def test_training_with_worker_processes_is_the_same_training(workplace):
    here, _ = train("here", data=make_data(60), micro_batch=3)
    ahead, _ = train("ahead", data=make_data(60), micro_batch=3, num_workers=2)
    assert largest_difference(here, ahead) == 0


def test_every_tensor_of_a_batch_moves():
    batch = {"a": torch.ones(2), "b": [torch.ones(1), "text"], "c": (torch.ones(1), 3)}
    moved = to_device(batch, torch.device("meta"))
    assert moved["a"].device.type == moved["b"][0].device.type == moved["c"][0].device.type == "meta"
    assert (moved["b"][1], moved["c"][1]) == ("text", 3)
