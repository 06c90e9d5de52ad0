"""The size of DDP's buckets for one model, so that little is left to send when its backward pass has ended."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain

from torch import nn


def bucket_size(model: nn.Module, least: int) -> int:
    """From `least` to twice as many bytes: the size with which the fewest bytes wait for the model's first layer.

    Backward computes the first layer's gradients last, so that nothing is left to hide the exchange of their buckets.
    With an unlucky size, gradients that have long been there wait with them: where a layer's weights fill a bucket, its
    biases begin the next one, and the second layer's weights wait for them.
    """
    layers = [[p.numel() * p.element_size() for p in layer] for layer in _layers(model)]
    ends = accumulate(chain.from_iterable(layers))  # with such a size, the first bucket ends where a gradient does
    sizes = {least, *(end for end in ends if least < end <= 2 * least)}
    return min(sizes, key=lambda size: (_waiting_bytes(layers, size), size))


def _layers(model: nn.Module) -> Iterator[list[nn.Parameter]]:
    """The trained parameters of one module after the other, each once, in the order in which DDP fills its buckets."""
    seen: set[nn.Parameter] = set()
    for module in model.modules():
        own = [p for p in module.parameters(recurse=False) if p.requires_grad and p not in seen]
        seen.update(own)
        if own:
            yield own


def _waiting_bytes(layers: Sequence[Sequence[int]], size: int) -> int:
    """The bytes of all buckets with a gradient of the first layer; DDP closes a bucket when it has reached `size`."""
    waiting = bucket = 0
    waits = True
    for number, layer in enumerate(layers):
        for num_bytes in layer:
            waits = waits or number == 0
            bucket += num_bytes
            if bucket >= size:
                waiting += bucket * waits
                bucket, waits = 0, False
    return waiting + bucket * waits
