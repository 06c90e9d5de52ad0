"""The size of DDP's buckets, against what DDP really makes of it."""

import itertools

import pytest
import torch
from torch import nn
from torch.futures import Future
from torchft.process_group import ProcessGroupDummy

from potluck.engine.group.bucket_size import bucket_size

LEAST = 4096
WIDTH = 32  # a layer's weights are LEAST bytes


def waiting_bytes(model, size):
    """What real DDP sends in buckets that hold a gradient of the first layer."""
    wrapped = nn.parallel.DistributedDataParallel(
        model, process_group=ProcessGroupDummy(0, 1), find_unused_parameters=True, bucket_cap_mb=size / (1 << 20)
    )
    first, waiting = set(next(iter(model.children())).parameters()), []

    def hook(_, bucket):
        if first & set(bucket.parameters()):
            waiting.append(bucket.buffer().numel() * bucket.buffer().element_size())
        done = Future()
        done.set_result(bucket.buffer())
        return done

    wrapped.register_comm_hook(None, hook)
    wrapped(torch.randn(2, WIDTH)).sum().backward()
    return sum(waiting)


def layers(*widths, bias=True):
    return nn.Sequential(*(nn.Linear(a, b, bias=bias) for a, b in itertools.pairwise(widths)))


def test_a_layer_that_fills_a_bucket_does_not_share_the_next_one():
    model = layers(*[WIDTH] * 9)
    assert waiting_bytes(model, LEAST) > 2 * LEAST
    assert waiting_bytes(model, bucket_size(model, LEAST)) == LEAST + 4 * WIDTH


@pytest.mark.parametrize(
    "widths", [(WIDTH,) * 4, (32, 16, 16, 200), (32, 100, 7, 33, 90), (32, 4), (32, 8, 8, 8, 8, 8, 8), (32, 300, 10)]
)
@pytest.mark.parametrize("bias", [True, False])
def test_no_other_size_tried_leaves_less_to_the_end(widths, bias):
    model = layers(*widths, bias=bias)
    chosen = bucket_size(model, LEAST)
    assert LEAST <= chosen <= 2 * LEAST
    left = waiting_bytes(model, chosen)
    assert left <= min(waiting_bytes(model, LEAST * part // 16) for part in range(16, 33))


def test_frozen_and_shared_parameters_are_in_no_bucket_of_their_own():
    model = layers(*[WIDTH] * 5)
    model[1].weight.requires_grad_(False)
    model[3].weight = model[2].weight
    assert waiting_bytes(model, bucket_size(model, LEAST)) == LEAST + 4 * WIDTH
    assert waiting_bytes(model, LEAST) > LEAST + 4 * WIDTH


def test_a_model_without_trained_parameters_has_a_size_too():
    assert bucket_size(nn.ReLU(), LEAST) == LEAST
