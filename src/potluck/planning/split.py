"""A global batch cut into consecutive parts, one a worker."""

from collections.abc import Sequence
from itertools import accumulate


def split_by_shares(batch: int, shares: Sequence[int]) -> list[range]:
    """Consecutive parts in proportion to the shares: worker i ends at floor(batch * sum(shares[:i+1]) / sum(shares)).

    Integers only, so every worker computes the same parts; shares that add up to the batch are the parts' sizes.
    """
    if not any(shares):
        shares = [1] * len(shares)  # somebody has to
    total = sum(shares)
    ends = [batch * reached // total for reached in accumulate(shares)]
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]
