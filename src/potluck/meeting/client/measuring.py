"""Measures all joined machines: their links with Gloo, then a model on each machine."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations

from potluck.core.errors import MeasureError
from potluck.doctor.probing.asks import ClosePort, OpenPort, PortOpen, StationLostError
from potluck.measuring.profile_store import StoredProfile
from potluck.meeting.client.asking import JoinedStation, visiting
from potluck.meeting.home import HostMembership
from potluck.meeting.questions import (
    MEASURE_S,
    SWEEP_S,
    LinkSeen,
    LinksSwept,
    MeasureModel,
    ProfilesTold,
    SweepLinks,
    TellProfiles,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to measure on every machine."""

    model: str
    model_size: str
    mixed_precision: str
    device: str | None
    """None: every device that a machine trains on."""
    global_batch: int
    seconds: float
    memory_limit: str | None
    tuning: bool
    compiles: bool


@dataclass(slots=True, kw_only=True)
class ClusterMeasurement:
    """Result of measuring all machines."""

    profiles: list[StoredProfile] = field(default_factory=list)
    links: LinksSwept | None = None
    """None if there is only one machine, or if the sweep failed."""
    failed: dict[str, str] = field(default_factory=dict)
    """Machines without a profile, and why."""


def measure_joined(membership: HostMembership, wanted: Wanted, tell: Callable[[str], None]) -> ClusterMeasurement:
    """Measure all present machines that train: first the links, in one sweep, then the model on all in parallel."""
    found = ClusterMeasurement()
    with visiting(membership, tell, MEASURE_S) as visit:
        found.failed.update(visit.absent)
        if len(visit.stations) > 1:
            tell(f"measuring the links between {', '.join(visit.stations)}")
            found.links = sweep_visited(visit.stations, visit.addresses, tell)
        tell(f"measuring {wanted.model}-{wanted.model_size} on {', '.join(visit.stations)}")

        def measure(machine: str) -> list[StoredProfile]:
            link = None if found.links is None else found.links.machines.get(machine)
            profiles = []
            for device in [wanted.device] if wanted.device else visit.devices.get(machine) or ["cpu"]:
                told = visit.stations[machine].ask(
                    MeasureModel(
                        model=wanted.model,
                        model_size=wanted.model_size,
                        mixed_precision=wanted.mixed_precision,
                        device=device,
                        global_batch=wanted.global_batch,
                        seconds=wanted.seconds,
                        memory_limit=wanted.memory_limit,
                        tuning=wanted.tuning,
                        compiles=wanted.compiles,
                        latency_s=None if link is None else link.latency_s,
                        bytes_per_s=None if link is None else link.bytes_per_s,
                        peers={} if found.links is None else _peers(machine, tuple(visit.stations), found.links),
                    ),
                    MEASURE_S,
                )
                profiles += _read(told)
            return profiles

        with ThreadPoolExecutor(max_workers=len(visit.stations)) as pool:
            waiting = {machine: pool.submit(measure, machine) for machine in visit.stations}
            for machine, future in waiting.items():
                try:
                    found.profiles += future.result()
                except StationLostError as error:
                    found.failed[machine] = str(error)
    return found


def profiles_of_joined(
    membership: HostMembership, model: str, precision: str, tell: Callable[[str], None]
) -> dict[str, list[StoredProfile]]:
    """The profiles of this model that each joined machine has stored; empty for a machine never measured."""
    question = TellProfiles(model=model, mixed_precision=precision)
    with visiting(membership, tell) as visit, ThreadPoolExecutor(max_workers=len(visit.stations)) as pool:
        waiting = {machine: pool.submit(station.ask, question) for machine, station in visit.stations.items()}
        found = {}
        for machine, future in waiting.items():
            try:
                found[machine] = _read(future.result())
            except StationLostError as error:
                raise MeasureError(
                    f"{machine} does not tell what it has measured: {error}",
                    fix="see what is wrong: potluck doctor --cluster; or plan with files of profiles: --solo",
                ) from None
        return found


def sweep_visited(
    stations: dict[str, JoinedStation], addresses: dict[str, str], tell: Callable[[str], None]
) -> LinksSwept | None:
    """Measure the links between the machines of a visit, in one sweep; None, with a line to `tell`, if that fails."""
    names = tuple(stations)
    first = names[0]
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        try:
            opened = stations[first].ask(OpenPort(address=addresses[first], port=0, word=secrets.token_hex(16)))
            assert isinstance(opened, PortOpen)
            stations[first].ask(ClosePort())
            waiting = [
                pool.submit(
                    stations[name].ask,
                    SweepLinks(
                        meeting=addresses[first],
                        port=opened.free_port,
                        rank=rank,
                        machines=names,
                        address=addresses[name],
                    ),
                    SWEEP_S,
                )
                for rank, name in enumerate(names)
            ]
            answers = [future.result() for future in waiting]
        except StationLostError as error:
            tell(f"the links were not measured: {error}; potluck doctor --cluster says what is wrong")
            return None
    return next((one for one in answers if isinstance(one, LinksSwept)), None)


def _peers(machine: str, machines: tuple[str, ...], swept: LinksSwept) -> dict[str, LinkSeen]:
    """The measured links between a machine and each other one."""
    pairs = {f"{one}-{other}": (one, other) for one, other in combinations(machines, 2)}
    return {
        other: seen
        for key, seen in swept.pairs.items()
        if machine in pairs.get(key, ())
        for other in pairs[key]
        if other != machine
    }


def _read(told: object) -> list[StoredProfile]:
    assert isinstance(told, ProfilesTold)
    return [StoredProfile.model_validate_json(one) for one in told.profiles]
