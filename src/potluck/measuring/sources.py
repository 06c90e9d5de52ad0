"""From kept profiles to the cluster that a plan is made for."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from potluck.core.errors import MeasureError, did_you_mean
from potluck.core.quantities import duration_s, rate_bytes_per_s
from potluck.measuring.profile_store import StoredProfile, find_profiles, read_profile
from potluck.planning.cluster import Cluster, Worker
from potluck.planning.costs import Exchange, LinkProfile, bucket_bytes
from potluck.planning.seen import as_seen


def gather_profiles(
    home: Path,
    files: Iterable[Path],
    model: str,
    precision: str,
    joined: Mapping[str, Sequence[StoredProfile]] | None = None,
) -> list[StoredProfile]:
    """Profiles for a plan: what joined machines told, else those kept here; a file counts for its machine."""
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


def make_cluster(profiles: Sequence[StoredProfile], links: Mapping[str, LinkProfile] | None = None) -> Cluster:
    """One worker a profile, with the exchange as their last run together showed it; links given here count instead."""
    numbers: dict[str, int] = {}
    workers = []
    for profile in profiles:
        number = numbers[profile.machine] = numbers.get(profile.machine, -1) + 1
        name = f"{profile.machine}-{number}"
        workers.append(Worker(name=name, machine=profile.machine, compute=profile.compute))
    num_bytes = max(profile.gradient_bytes for profile in profiles)
    known = {profile.machine: profile.link for profile in profiles if profile.link is not None}
    cluster = Cluster(workers=tuple(workers), links={**known, **(links or {})}, exchange=exchange_of(num_bytes))
    rings = [profile.ring for profile in profiles if profile.ring and profile.ring.num_workers == len(profiles)]
    if links or not rings or len(rings) < len(profiles):
        return cluster
    ring = min(rings, key=lambda one: one.exposed_s)  # of one run all tell the same, give or take its last steps
    return as_seen(cluster, np.ones(len(cluster.machines), dtype=bool), ring)


def read_links(texts: Iterable[str], machines: Sequence[str]) -> dict[str, LinkProfile]:
    """Links as a person writes them: rosa=100mbit, or rosa=100mbit,2ms with the latency of a hop."""
    links = {}
    for text in texts:
        name, _, rate = text.partition("=")
        if name not in machines:
            raise MeasureError(f"there is no machine {name!r} for --link {text}", fix=did_you_mean(name, machines))
        speed, _, latency = rate.partition(",")
        links[name] = LinkProfile(
            latency_s=duration_s(latency) if latency else 0.0, bandwidth_bytes_per_s=rate_bytes_per_s(speed)
        )
    return links


def exchange_of(num_bytes: int) -> Exchange:
    """What is sent for gradients of that size: a small tensor of counts, and the buckets."""
    return Exchange(num_bytes=num_bytes, num_messages=1 + -(-num_bytes // bucket_bytes(num_bytes)))
