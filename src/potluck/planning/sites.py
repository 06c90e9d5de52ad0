"""Where machines are: those with a fast link between them are at one site, and sites share the slow link between them.

A pair of machines may be slower than either machine's own link: two homes, each with a fast network, and an uplink
between them. All that crosses such a link shares it, so the number of flows counts, not only the slowest pair.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, permutations, product

from potluck.planning.costs import LinkProfile

Pairs = Mapping[frozenset[str], LinkProfile]
PairRates = tuple[tuple[str, str, float], ...]
"""Two machines and the bytes/s between them."""
_NEAR = 0.5  # a pair at this part of the slower machine's best rate is limited by that machine's own link


def find_sites(machines: Sequence[str], pairs: Pairs) -> tuple[tuple[str, ...], ...]:
    """The machines of each site, in their order; a machine without a measured pair is a site of its own."""
    order = {name: index for index, name in enumerate(machines)}
    measured: list[tuple[str, str, float]] = []
    for pair, link in pairs.items():
        if len(pair) == 2 and pair <= order.keys():
            one, other = sorted(pair, key=order.__getitem__)
            measured.append((one, other, link.bandwidth_bytes_per_s))
    best = dict.fromkeys(machines, 0.0)
    for one, other, rate in measured:
        best[one], best[other] = max(best[one], rate), max(best[other], rate)
    site_of = {name: [name] for name in machines}
    for one, other, rate in measured:
        if rate > _NEAR * min(best[one], best[other]) and site_of[one] is not site_of[other]:
            joined = site_of[one] + site_of[other]
            site_of |= dict.fromkeys(joined, joined)
    sites = {id(site): sorted(site, key=order.__getitem__) for site in site_of.values()}
    return tuple(tuple(site) for site in sorted(sites.values(), key=lambda site: order[site[0]]))


@lru_cache(maxsize=10_000)  # plans are checked every few steps, each time for the same sets of machines
def shared_bandwidth(
    ring: tuple[str, ...], rates: PairRates, sites: tuple[tuple[str, ...], ...], *, is_all_to_all: bool
) -> float:
    """Bytes/s at which each worker of a ring sends, by the measured pairs; infinite where none was measured.

    `ring` is the machine of every worker, in the order of the ring. A link between two sites carries several flows:
    one for each place where the ring leaves the site. If everybody sends to everybody, half of the bytes go from each
    worker of one site to each worker of the other, and the other half goes around the ring.
    """
    rate_of = {frozenset((one, other)): rate for one, other, rate in rates}
    site_of = {name: number for number, site in enumerate(sites) for name in site}
    edges = [(one, other) for one, other in [*pairwise(ring), (ring[-1], ring[0])] if one != other]
    slowest = min(
        (rate for one, other in edges if (rate := rate_of.get(frozenset((one, other)))) is not None), default=math.inf
    )
    for way in permutations(sorted({site_of[name] for name in ring}), 2):
        flows: float = sum((site_of[one], site_of[other]) == way for one, other in edges)
        here, there = ([name for name in ring if site_of[name] == site] for site in way)
        if is_all_to_all:
            flows = (flows + len(here) * len(there) / (len(ring) - 1)) / 2
        between = [rate_of.get(frozenset(pair), math.inf) for pair in product(set(here), set(there))]
        slowest = min(slowest, min(between) / max(1.0, flows))
    return slowest


def rates_of(pairs: Pairs) -> PairRates:
    """The rates of the links between two machines."""
    return tuple(sorted((min(pair), max(pair), link.bandwidth_bytes_per_s) for pair, link in pairs.items()))


def rate_between(pairs: Pairs, one: str, other: str) -> float:
    """Bytes/s of the measured link between two machines; 0 if nobody measured it."""
    link = pairs.get(frozenset((one, other)))
    return 0.0 if link is None else link.bandwidth_bytes_per_s
