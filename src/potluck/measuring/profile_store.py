"""Profiles on disk, one for each (machine, device, model, precision), so that a second run starts with a good plan."""

import re
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from potluck.core.atomic import write_text
from potluck.core.errors import MeasureError
from potluck.core.plain_file import read_plain
from potluck.planning.costs import ComputeProfile, LinkProfile
from potluck.planning.measured_exchange import RingMeasurement


class StoredProfile(BaseModel):
    """The measurements of one device with one model."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    machine: str
    device: str
    model: str
    """Name and size of a built-in model, a script's own name for its model, or a digest of the model."""
    precision: str
    compute: ComputeProfile
    gradient_bytes: int
    """The bytes of gradients that every step exchanges."""
    link: LinkProfile | None = None
    peers: dict[str, LinkProfile] = {}
    """The links to other machines, by machine, as a sweep of all links measured them."""
    coding_factor: float = 1.0
    """How much longer coding gradients takes on this machine than planning/codes.py says."""
    ring: RingMeasurement | None = None
    """The exchange as the last run with other machines measured it."""
    trial: dict[int, float] = {}
    """Median seconds by batch size, as measured."""
    tuning: str = ""
    """The ways that were tried to do the same maths, in words; the costs above are with those taken."""
    measured_at: float = 0.0
    versions: dict[str, str] = {}
    stretch: float = 1.0
    """How much longer the device's work takes without the pauses of a ring, with which a run measured `compute`: a
    container's CPU quota allows only bursts. 1 for trials, which have no such pauses."""
    overhead_s: float | None = None
    """What a step takes beside its work (the commit vote, events, checkpoints), as the newest run of any model on this
    machine measured it. The costs of a run contain it, those of a trial do not. None before the first run."""
    is_measured: bool = True
    """False if the cost comes from the table of devices (measuring.device_speeds)."""
    specification: str = ""
    """What the device is: its card's name, or its cores and processor; empty if it is not known."""


def profile_file(home: Path, machine: str, device: str, model: str, precision: str) -> Path:
    """The path of a profile's file."""
    parts = (re.sub(r"[^A-Za-z0-9._-]", "-", part).lstrip(".") or "-" for part in (device, model, precision))
    return home / "profiles" / machine / f"{'+'.join(parts)}.json"


def save_profile(home: Path, profile: StoredProfile) -> Path:
    """Save a profile in place of an older one, and return its path."""
    path = profile_file(home, profile.machine, profile.device, profile.model, profile.precision)
    write_text(path, profile.model_dump_json(indent=2) + "\n")
    return path


def find_profile(home: Path, machine: str, device: str, model: str, precision: str) -> StoredProfile | None:
    """The saved profile, if there is one."""
    path = profile_file(home, machine, device, model, precision)
    return read_profile(path) if path.exists() else None


def find_profiles(home: Path, model: str, precision: str) -> list[StoredProfile]:
    """All saved profiles of this model and precision, sorted by machine."""
    profiles = [read_profile(path) for path in sorted((home / "profiles").glob("*/*.json"))]
    return [profile for profile in profiles if (profile.model, profile.precision) == (model, precision)]


def newest_links(home: Path, machine: str) -> StoredProfile | None:
    """The machine's newest profile with measured links, of any model: links do not depend on the model."""
    known = _of_all_models(home, machine)
    return max((one for one in known if one.link is not None), key=lambda one: one.measured_at, default=None)


def newest_overhead_s(home: Path, machine: str) -> float | None:
    """What a step takes beside its work, as the machine's newest run of any model measured it; None before any run."""
    measured = [one for one in _of_all_models(home, machine) if one.overhead_s is not None]
    return max(measured, key=lambda one: one.measured_at).overhead_s if measured else None


def _of_all_models(home: Path, machine: str) -> list[StoredProfile]:
    known = []
    for path in sorted((home / "profiles" / machine).glob("*.json")):
        with suppress(MeasureError):  # a damaged profile of another model is no reason to stop
            known.append(read_profile(path))
    return known


def read_profile(path: Path) -> StoredProfile:
    """Read and check a profile's file."""
    try:
        return StoredProfile.model_validate_json(read_plain(path))
    except OSError as error:
        raise MeasureError(f"{path} cannot be read: {error.strerror}", fix="check the path") from None
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise MeasureError(
            f"{path} is not a profile: {where} {problem['msg'].lower()}".replace("  ", " "),
            fix=f"measure that machine again: potluck profile --json > {path}",
        ) from None
