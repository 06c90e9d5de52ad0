"""Checks of a machine that asks to join: versions, clock, certificate, name. A refusal says what to type, and where."""

from collections.abc import Iterable

from potluck.core.errors import MeetingError
from potluck.core.version import FROM_THE_SAME_CLONE
from potluck.gates.identity import ends_at
from potluck.meeting.wire import Introduction

MOST_CLOCK_S = 5.0
_COMPARED_PARTS = {"potluck": 3, "torch": 2, "torchft": 2, "python": 2}


def check_versions(theirs: Introduction, host: Introduction) -> None:
    """Refuse versions that do not train together."""
    for package, num_parts in _COMPARED_PARTS.items():
        own, other = (facts.versions.get(package, "missing") for facts in (host, theirs))
        if _parts(own, num_parts) == _parts(other, num_parts):
            continue
        plain = own.split("+")[0]
        if package == "python":
            fix = f"on {theirs.machine}: make the virtual environment with Python {'.'.join(_parts(own, num_parts))}"
        elif package == "potluck":
            fix = f"on {theirs.machine}: {FROM_THE_SAME_CLONE}"
        else:
            fix = f"on {theirs.machine}: pip install {package}=={plain}"
        raise MeetingError(
            f"{theirs.machine} has {package} {other}, {host.machine} has {own}: they do not train together", fix=fix
        )


def check_clock(theirs: Introduction, host: Introduction, *, ahead_s: float, round_trip_s: float) -> None:
    """Refuse a clock that is off by more than MOST_CLOCK_S, less half the round trip as the error of measurement."""
    off_s = abs(ahead_s) - round_trip_s / 2
    if off_s <= MOST_CLOCK_S:
        return
    direction = "ahead of" if ahead_s > 0 else "behind"
    fix = "wsl --shutdown, in Windows" if "WSL2" in theirs.os else "sudo timedatectl set-ntp true"
    raise MeetingError(
        f"{theirs.machine}'s clock is {abs(ahead_s):.0f} s {direction} {host.machine}'s: logs would not fit together",
        fix=f"on {theirs.machine}: {fix}, then join again",
    )


def check_certificate(theirs: Introduction, now: float) -> None:
    """Refuse a certificate that no gate would accept: damaged or expired."""
    try:
        is_valid = theirs.certificate.count("BEGIN CERTIFICATE") == 1 and ends_at(theirs.certificate) > now
    except ValueError:
        is_valid = False
    if not is_valid:
        raise MeetingError(
            f"the certificate of {theirs.machine} is damaged or has expired: no gate would let it in",
            fix=f"on {theirs.machine}: rm -r ~/.potluck/identity, then join again; a new one is made",
        )


def check_identity(theirs: Introduction, others: Iterable[Introduction]) -> None:
    """Refuse a certificate that another machine has: gates identify machines by their certificates."""
    for other in others:
        if theirs.certificate and other.certificate == theirs.certificate and other.machine_id != theirs.machine_id:
            raise MeetingError(
                f"{other.machine} ({other.address}) has the same identity as {theirs.machine}: one is a copy",
                fix=f"on {theirs.machine}: rm -r ~/.potluck/identity ~/.potluck/machine-id, then join again",
            )


def check_name(theirs: Introduction, holder: Introduction | None) -> None:
    """Refuse a name that another machine has."""
    if holder is not None and holder.machine_id != theirs.machine_id:
        raise MeetingError(
            f"another machine ({holder.address}, {holder.os}) has joined as {theirs.machine}",
            fix=f"join with --name {theirs.machine}-2, or if that machine is gone: potluck leave {theirs.machine}",
        )


def _parts(version: str, num_parts: int) -> list[str]:
    return version.split("+", 1)[0].split(".")[:num_parts]
