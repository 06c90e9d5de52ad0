"""Makes the Cluster that a plan is for from saved profiles."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from potluck.core.errors import MeasureError, did_you_mean
from potluck.core.quantities import duration_s, rate_bytes_per_s
from potluck.measuring.profile_store import StoredProfile, find_profiles, read_profile
from potluck.planning.cluster import Cluster, Worker
from potluck.planning.codes import CODES, EXACT
from potluck.planning.costs import Exchange, LinkProfile, bucket_bytes
from potluck.planning.measured_exchange import RingMeasurement, as_seen

_MOST_TOLD = 8  # machines in a line
_USUAL_OVERHEAD_S = 0.003  # where no run has measured it: against bare DDP a step took 3 ms more


def gather_profiles(
    home: Path,
    files: Iterable[Path],
    model: str,
    precision: str,
    joined: Mapping[str, Sequence[StoredProfile]] | None = None,
) -> list[StoredProfile]:
    """Profiles for a plan: those of joined machines, else those saved here; a file replaces its machine's profiles."""
    brought = [read_profile(path) for path in files]
    for profile in brought:
        if (profile.model, profile.precision) != (model, precision):
            raise MeasureError(
                f"{profile.machine}'s profile is of {profile.model} with precision {profile.precision!r}, "
                f"the plan is for {model} with {precision!r}",
                fix=f"measure that machine with the same model, or plan for {profile.model}",
            )
    named = {profile.machine for profile in brought}
    known = (
        find_profiles(home, model, precision) if joined is None else [one for each in joined.values() for one in each]
    )
    kept = [profile for profile in known if profile.machine not in named]
    if not brought and not kept:
        name, _, size = model.rpartition("-")
        raise MeasureError(
            f"no machine was measured with {model} yet",
            fix=f"measure {'this one' if joined is None else 'all of them'}: "
            f"potluck profile --model {name} --model-size {size}",
        )
    return sorted([*brought, *kept], key=lambda profile: (profile.machine, profile.device))


def make_cluster(
    profiles: Sequence[StoredProfile],
    links: Mapping[str, LinkProfile] | None = None,
    *,
    measured: Sequence[StoredProfile] | None = None,
) -> Cluster:
    """A Cluster with a worker for each profile; the exchange is as the last run measured it, unless links are given.

    `measured`: the profiles of the machines as they are, where `profiles` are those of a question about more machines
    or fewer. What their ring measured is then scaled to the number of machines and to the links that are asked about.
    """
    cluster, basis = _unmeasured(profiles, links), _unmeasured(measured or profiles, links)
    ring = _largest_ring(measured or profiles)
    if ring is None or not set(ring.machines).isdisjoint(links or {}):
        return replace(cluster, overhead_s=_overhead_s(profiles))
    seen = as_seen(basis, np.array([name in ring.machines for name in basis.machines]), ring)
    # Inferred from the whole ring, a link says nothing about one machine: it is the link of machines that come, too.
    inferred = next((link for link in seen.links.values() if not link.is_measured), None)
    unknown = {} if inferred is None else dict.fromkeys(cluster.machines, inferred)
    return replace(cluster, exchange=seen.exchange, overhead_s=seen.overhead_s, links={**unknown, **cluster.links})


def _overhead_s(profiles: Sequence[StoredProfile]) -> float:
    """What a step of several machines takes beside the work that trials have measured; costs of runs contain it."""
    if len({profile.machine for profile in profiles}) < 2:
        return 0.0
    known = [profile.overhead_s for profile in profiles if profile.trial]
    return max((_USUAL_OVERHEAD_S if each_s is None else each_s for each_s in known), default=0.0)


def _unmeasured(profiles: Sequence[StoredProfile], links: Mapping[str, LinkProfile] | None) -> Cluster:
    """The workers and links of these profiles; the exchange is that of the formula."""
    numbers: dict[str, int] = {}
    workers = []
    for profile in profiles:
        number = numbers[profile.machine] = numbers.get(profile.machine, -1) + 1
        name = f"{profile.machine}-{number}"
        workers.append(
            Worker(
                name=name,
                machine=profile.machine,
                compute=profile.compute,
                coding_factor=profile.coding_factor,
                stretch=profile.stretch,
                least_factor=profile.stretch,
                is_measured=profile.is_measured,
            )
        )
    num_bytes = max(profile.gradient_bytes for profile in profiles)
    known = {profile.machine: profile.link for profile in profiles if profile.link is not None}
    pairs = measured_pairs(profiles, named=links or {})
    here = {profile.machine for profile in profiles}
    named = {name: link for name, link in (links or {}).items() if name in here}
    return Cluster(workers=tuple(workers), links={**known, **named}, exchange=exchange_of(num_bytes), pairs=pairs)


def differences(profiles: Sequence[StoredProfile], exchange: str) -> list[str]:
    """Lines for a person about profiles that are not alike, so that a plan from them is less than it seems."""
    lines = []
    sizes = {profile.machine: profile.gradient_bytes for profile in profiles}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} {size:,}" for name, size in list(sizes.items())[:_MOST_TOLD])
        lines.append(
            f"the machines were not measured with one model: bytes of gradients differ ({told}); measure them again "
            "with the same model, or give it another name"
        )
    ring = _largest_ring(profiles)
    if ring is not None and exchange in CODES and ring.code != exchange:
        lines.append(
            f"the exchange was measured with --exchange {ring.code}; that of --exchange {exchange} is computed from it"
        )
    return lines


def measured_pairs(
    profiles: Iterable[StoredProfile], named: Mapping[str, LinkProfile]
) -> dict[frozenset[str], LinkProfile]:
    """The links between two machines by the newest profiles; none of a machine whose link the user names."""
    machines = {profile.machine for profile in profiles} - named.keys()
    return {
        frozenset((profile.machine, other)): link
        for profile in sorted(profiles, key=lambda one: one.measured_at)
        for other, link in profile.peers.items()
        if {profile.machine, other} <= machines
    }


def _largest_ring(profiles: Sequence[StoredProfile]) -> RingMeasurement | None:
    """The largest measured ring on which the profiles of its machines agree, if all these profiles took part in it."""
    rings = []
    for profile in profiles:
        if profile.ring is not None and len(profile.ring.machines) > 1:
            members = [one for one in profiles if one.machine in profile.ring.machines]
            told = {one.ring.machines if one.ring else () for one in members}
            if told == {tuple(sorted(one.machine for one in members))}:
                rings.append(profile.ring)
    return max(rings, key=lambda ring: (len(ring.machines), -ring.exposed_s), default=None)


def read_links(texts: Iterable[str], machines: Sequence[str]) -> dict[str, LinkProfile]:
    """Links as users write them for --link: rosa=100mbit, or rosa=100mbit,2ms with the latency of a hop."""
    links = {}
    for text in texts:
        name, _, rate = text.partition("=")
        if name not in machines:
            raise MeasureError(f"there is no machine {name!r} for --link {text}", fix=did_you_mean(name, machines))
        if name in links:
            raise MeasureError(f"--link names {name} twice", fix="give each machine one --link")
        speed, _, latency = rate.partition(",")
        links[name] = LinkProfile(
            latency_s=duration_s(latency) if latency else 0.0, bandwidth_bytes_per_s=rate_bytes_per_s(speed)
        )
    return links


def exchange_of(num_bytes: int, code: str = "exact") -> Exchange:
    """The Exchange of gradients of that size in a code: a small tensor of counts, and the gradient buckets."""
    return Exchange(
        num_bytes=num_bytes,
        num_messages=1 + -(-num_bytes // bucket_bytes(num_bytes, code)),
        code=CODES.get(code, EXACT),
    )
