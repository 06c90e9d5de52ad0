"""Reads what users write for `potluck simulate`: slow-downs, losses, sites."""

import re
from collections.abc import Iterable

from potluck.core.errors import SettingsError
from potluck.core.quantities import duration_s
from potluck.simulate.scenario import MachineLoss, SlowDown

_SLOW = re.compile(r"(?P<machine>[^=@\s]+)=(?P<factor>\d+(?:\.\d+)?)@(?P<first>\d+)-(?P<last>\d+)")
_LOSE = re.compile(r"(?P<machine>[^=@\s]+)@(?P<step>\d+)(?:\+(?P<away>[\d.]+[a-z]+))?")


def read_slow_downs(texts: Iterable[str]) -> tuple[SlowDown, ...]:
    """Read rosa=0.33@60-120: a third of its speed in these steps."""
    found = []
    for text in texts:
        match = _SLOW.fullmatch(text)
        if match is None or float(match["factor"]) <= 0:
            raise SettingsError(f"--slow {text!r} is not a slow-down", fix="write it as --slow rosa=0.33@60-120")
        found.append(SlowDown(match["machine"], float(match["factor"]), int(match["first"]), int(match["last"])))
    return tuple(found)


def read_losses(texts: Iterable[str]) -> tuple[MachineLoss, ...]:
    """Read lily@180, or lily@180+30s for a machine that comes back."""
    found = []
    for text in texts:
        match = _LOSE.fullmatch(text)
        if match is None:
            raise SettingsError(
                f"--lose {text!r} is not a loss", fix="write it as --lose lily@180, or lily@180+30s if it comes back"
            )
        found.append(
            MachineLoss(match["machine"], int(match["step"]), duration_s(match["away"]) if match["away"] else None)
        )
    return tuple(found)


def read_sites(texts: Iterable[str]) -> dict[str, str]:
    """Read far=fern,moss: these machines stand at another site than the others."""
    sites: dict[str, str] = {}
    for text in texts:
        name, _, told = text.partition("=")
        machines = [machine.strip() for machine in told.split(",") if machine.strip()]
        if not (name and machines):
            raise SettingsError(f"--site {text!r} is not a site", fix="write it as --site far=fern,moss")
        for machine in machines:
            if sites.get(machine, name) != name:
                raise SettingsError(
                    f"{machine} cannot stand at {sites[machine]} and at {name}", fix="name each machine at one --site"
                )
            sites[machine] = name
    return sites
