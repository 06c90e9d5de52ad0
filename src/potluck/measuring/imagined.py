"""Profiles of machines that nobody has measured, for questions like `potluck plan --add "RTX 3060,wifi"`.

The speed is the table's (measuring.device_speeds), times what the machines that were measured do for each unit of the
table: their geometric mean, of the same sort of device where there is one. The shape of the cost, how it grows with
samples, is that of the measured machine whose speed is nearest.
"""

import itertools
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from potluck.core.errors import MeasureError, did_you_mean
from potluck.core.quantities import duration_s, rate_bytes_per_s
from potluck.measuring.device_speeds import CARDS, DeviceSpeed, close_to, doubt_between, find_speed
from potluck.measuring.profile_store import StoredProfile
from potluck.planning.costs import ComputeProfile, LinkProfile

LINKS = {
    "wifi": ("100mbit", "2ms", 0.5),
    "wifi6": ("400mbit", "2ms", 0.5),
    "dsl": ("20mbit", "15ms", 0.3),
    "cable": ("1gbit", "200us", 0.1),
}
"""Links by their usual name: rate, latency of a hop, and the relative error of the rate."""
_USUAL_BATCH = 64
_MOST = 100_000
_PART_OF = re.compile(r"(\d+(?:\.\d+)?)\s*(?:of|times|x)\s+(\S+)", re.IGNORECASE)
_LATE_COUNT = re.compile(r"\d+(?:\.\d+)?\s*(?P<times>[x*])?\s+(?P<device>.+)", re.IGNORECASE)
_COUNT = re.compile(r"(\d+)\s*[x*]\s+(.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Machines as a user names them: `2x shelf=RTX 3060,wifi`."""

    text: str
    count: int
    name: str
    specification: str
    link: LinkProfile | None
    is_named: bool = False
    """Whether the user chose the name."""


def read_wish(text: str, measured: Collection[str] | None = None) -> Wish:
    """Read COUNTx NAME=DEVICE,LINK, of which only DEVICE is needed. `measured`: names that can follow `2 x`."""
    device, *link = (part.strip() for part in text.split(","))
    counted, like = _COUNT.fullmatch(device), _PART_OF.fullmatch(device)
    if like and (measured is None or like[2] in measured):
        counted = None  # 2 x rosa is a machine twice as fast
    count, device = (int(counted[1]), counted[2]) if counted else (1, device)
    name, equals, specification = device.partition("=")
    specification = specification if equals else device
    if not specification.strip():
        raise MeasureError(f"--add {text!r} names no device", fix='write it as --add "RTX 3060,wifi"')
    if not 1 <= count <= _MOST:
        raise MeasureError(
            f"--add {text!r} asks for {count:,} machines", fix=f"ask for 1 to {_MOST:,}, or leave this --add out"
        )
    part = _PART_OF.fullmatch(specification.strip())
    late = _LATE_COUNT.fullmatch(specification.strip())
    if late and not part and (late["times"] or _is_card(late["device"])):
        raise MeasureError(
            f"--add {text!r}: it is not clear how many machines are meant",
            fix=f"write a whole number and an x before all else: --add '3x {late['device']}'",
        )
    if part and not float(part[1]):
        raise MeasureError(
            f"--add {text!r} is a machine that does nothing", fix=f"write it as --add '0.6 of {part[2]}'"
        )
    plain = f"like-{part[2]}" if part else re.sub(r"[^A-Za-z0-9]+", "-", specification).strip("-").lower()
    return Wish(
        text=text,
        count=count,
        name=(name.strip() if equals else plain) or "machine",
        specification=specification.strip(),
        link=_read_link(",".join(link), text) if link else None,
        is_named=bool(equals and name.strip()),
    )


def _is_card(specification: str) -> bool:
    speed = find_speed(specification)
    return speed is not None and speed.is_card


def _read_link(text: str, whole: str) -> LinkProfile:
    written, _, hop = text.partition(",")
    rate, latency, error = LINKS.get(text.lower(), (written, hop, 0.0))
    try:
        speed = rate_bytes_per_s(rate)
        hop_s = duration_s(latency) if latency else 0.0
    except Exception as problem:
        raise MeasureError(
            f"{text!r} in --add {whole!r} is not a link", fix=f"write {', '.join(LINKS)}, or a rate like 2.5gbit,1ms"
        ) from problem
    return LinkProfile(latency_s=hop_s, bandwidth_bytes_per_s=speed, error=error)


def with_wishes(
    measured: Sequence[StoredProfile], add: Iterable[str], without: Iterable[str], *, batch: int = _USUAL_BATCH
) -> list[StoredProfile]:
    """The profiles without the machines named by --without, and with those that --add describes."""
    gone, names = set(without), {profile.machine for profile in measured}
    unknown = sorted(gone - names)
    if unknown:
        fix = did_you_mean(unknown[0], sorted(names))
        raise MeasureError(f"there is no machine {unknown[0]!r} for --without", fix=fix)
    # A machine that is added under such a name has a link of its own.
    profiles = [
        profile.model_copy(update={"peers": {name: link for name, link in profile.peers.items() if name not in gone}})
        for profile in measured
        if profile.machine not in gone
    ]
    for text in add:
        wish, taken = read_wish(text, names), {profile.machine for profile in profiles}
        if wish.is_named and wish.count == 1 and wish.name in taken:
            raise MeasureError(
                f"--add {text!r}: there is a machine {wish.name!r} already",
                fix=f"give the new one another name; to replace a measured one, add --without {wish.name}",
            )
        profiles += imagine(wish, measured, taken=taken, batch=batch)
    if not profiles:
        raise MeasureError("no machine is left for this plan", fix="leave out fewer with --without")
    return sorted(profiles, key=lambda profile: (profile.machine, profile.device))


def imagine(
    wish: Wish, known: Sequence[StoredProfile], *, taken: Collection[str] = (), batch: int = _USUAL_BATCH
) -> list[StoredProfile]:
    """The profiles of the machines of a wish, for the model that the known profiles are of; no name is taken twice."""
    compute, device, stretch = _compute(wish, known, batch)
    names = _free_names(wish.name, wish.count, taken)
    pattern = known[0].model_copy(
        update={
            "device": device,
            "compute": compute,
            "gradient_bytes": max(profile.gradient_bytes for profile in known),
            "link": wish.link,
            "peers": {},
            "ring": None,
            "trial": {},
            "tuning": "",
            "stretch": stretch,
            "is_measured": _PART_OF.fullmatch(wish.specification) is not None,
            "specification": wish.specification,
        }
    )
    return [pattern.model_copy(update={"machine": name}) for name in names]


def _free_names(stem: str, count: int, taken: Collection[str]) -> list[str]:
    if count == 1 and stem not in taken:
        return [stem]
    width, free = len(str(count)), (number for number in itertools.count(1))
    names = (f"{stem}-{number:0{width}d}" for number in free)
    return list(itertools.islice((name for name in names if name not in taken), count))


def _compute(wish: Wish, known: Sequence[StoredProfile], batch: int) -> tuple[ComputeProfile, str, float]:
    """The cost of one machine of a wish, its device, and the stretch that a container's CPU quota gives it."""
    part = _PART_OF.fullmatch(wish.specification)
    if part:
        like = next((profile for profile in known if profile.machine == part[2]), None)
        if like is None:
            fix = f"choose of: {', '.join(sorted({profile.machine for profile in known}))}"
            raise MeasureError(f"no machine {part[2]!r} was measured for --add {wish.text!r}", fix=fix)
        compute = replace(like.compute.slowed(1 / float(part[1])), error=max(like.compute.error, 0.1))
        return compute, like.device, like.stretch
    wanted = find_speed(wish.specification)
    if wanted is None:
        close = close_to(wish.specification)
        meant = f"did you mean {', '.join(close)}? Or " if close else ""
        known_cards = "" if close else f", or choose of: {', '.join(card.name for card in CARDS)}"
        raise MeasureError(
            f"Potluck knows no speed of {wish.specification!r}",
            fix=f"{meant}say it as a part of a measured machine, like --add '0.6 of {known[0].machine}', or by its "
            f"cores, like '8-core laptop'{known_cards}",
        )
    return _scaled(wanted, _compared(wanted, known, batch, wish), batch), "cuda:0" if wanted.is_card else "cpu", 1.0


@dataclass(frozen=True, slots=True)
class _Measured:
    """A measured machine whose device is in the table."""

    profile: StoredProfile
    device: DeviceSpeed
    samples_per_s: float

    @property
    def per_unit(self) -> float:
        return self.samples_per_s / self.device.speed(self.profile.precision)


def _compared(wanted: DeviceSpeed, known: Iterable[StoredProfile], batch: int, wish: Wish) -> list[_Measured]:
    """The measured machines to compare with: of the same sort of device if there are any."""
    measured = [
        _Measured(profile, device, profile.compute.solo_speed(batch) / profile.stretch)
        for profile in known
        if profile.specification and (device := find_speed(profile.specification)) is not None
    ]
    if not measured:
        raise MeasureError(
            f"no measured machine says what it is, so there is nothing to compare {wish.specification!r} with",
            fix="measure one machine again: potluck profile; or say how fast it is: --add '0.6 of NAME'",
        )
    return [one for one in measured if one.device.is_card == wanted.is_card] or measured


def _scaled(wanted: DeviceSpeed, measured: Sequence[_Measured], batch: int) -> ComputeProfile:
    precision = measured[0].profile.precision
    logs = [math.log(one.per_unit) for one in measured]
    mean = sum(logs) / len(logs)
    differ = math.sqrt(sum((log - mean) ** 2 for log in logs) / (len(logs) - 1)) if len(logs) > 1 else 0.0
    speed = wanted.speed(precision) * math.exp(mean)
    nearest = min(measured, key=lambda one: abs(math.log(one.samples_per_s / speed)))
    doubt = min(doubt_between(wanted, one.device) for one in measured)
    slower = nearest.profile.compute.solo_speed(batch) / speed
    compute = nearest.profile.compute.slowed(slower)
    return replace(compute, error=min(0.9, max(doubt / math.sqrt(len(measured)), differ)), memory_cap=None)
