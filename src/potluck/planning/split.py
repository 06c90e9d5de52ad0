"""Splits a global batch into consecutive slices, one for each worker."""

from collections.abc import Sequence
from itertools import accumulate


def split_by_shares(batch: int, shares: Sequence[int]) -> list[range]:
    """Consecutive slices in proportion to the shares: worker i ends at floor(batch * sum(shares[:i+1]) / sum(shares)).

    Integers only, so every worker computes the same slices; shares that add up to the batch are the slices' sizes.
    """
    if not any(shares):
        shares = [1] * len(shares)  # no worker has a share, and the batch must be trained on
    total = sum(shares)
    ends = [batch * reached // total for reached in accumulate(shares)]
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def slice_of(worker: int, batch: int, shares: Sequence[int], takers: Sequence[int]) -> range:
    """One worker's slice of a batch of which only the `takers` take samples, in their order; else empty."""
    if worker not in takers:
        return range(0)
    return split_by_shares(batch, [shares[taker] for taker in takers])[takers.index(worker)]
