"""Checks of a machine that asks to join: versions, clock, certificate, name. A refusal says what to type, and where."""

from collections.abc import Iterable, Sequence

from potluck.core.errors import MeetingError
from potluck.core.version_rule import PACKAGES, Fit, fix_in_words, judge, title
from potluck.gates.identity import ends_at
from potluck.machine.parity import ParityReading, first_difference
from potluck.meeting.wire import Introduction

MOST_CLOCK_S = 5.0


def check_versions(theirs: Introduction, host: Introduction, *, install: str = "") -> tuple[str, ...]:
    """The packages whose versions differ so little that a parity check decides; refuses versions further apart.

    `install` is the command that installs the host's Potluck.
    """
    to_check = []
    for package in PACKAGES:
        own, other = _version(host, package), _version(theirs, package)
        fit = judge(package, own, other)
        if fit is Fit.REFUSED:
            raise MeetingError(
                f"{theirs.machine} has {title(package)} {other}, {host.machine} has {own}: they do not train together",
                fix=f"on {theirs.machine}: {fix_in_words(package, own, other, install=install)}",
            )
        if fit is Fit.CHECKED:
            to_check.append(package)
    return tuple(to_check)


def check_parity(
    theirs: Introduction, host: Introduction, to_check: Sequence[str], *, reading: ParityReading, own: ParityReading
) -> None:
    """Refuse a machine that computes other numbers than the host; `to_check` are the packages that differ."""
    difference = first_difference(own, reading)
    if difference is None:
        return
    fixes = [fix_in_words(package, _version(host, package), _version(theirs, package)) for package in to_check]
    raise MeetingError(
        f"{theirs.machine} ({_named(theirs, to_check)}) does not compute what {host.machine} "
        f"({_named(host, to_check)}) computes: parity check, {difference.text}",
        fix=f"on {theirs.machine}: {'; if that is not enough: '.join(fixes)}",
    )


def parity_wanted(theirs: Introduction, host: Introduction, to_check: Sequence[str]) -> str:
    """The sentence that asks a machine for its parity reading."""
    return (
        f"{theirs.machine} has {_named(theirs, to_check)}, {host.machine} has {_named(host, to_check)}: "
        "a parity check decides whether they train together"
    )


def check_clock(theirs: Introduction, host: Introduction, *, ahead_s: float, round_trip_s: float) -> None:
    """Refuse a clock that is off by more than MOST_CLOCK_S, less half the round trip as the error of measurement."""
    off_s = abs(ahead_s) - round_trip_s / 2
    if off_s <= MOST_CLOCK_S:
        return
    direction = "ahead of" if ahead_s > 0 else "behind"
    fix = "wsl --shutdown, in Windows" if "WSL2" in theirs.os else "sudo timedatectl set-ntp true"
    where = f"{theirs.machine}'s computer, not in the container" if theirs.is_container else theirs.machine
    raise MeetingError(
        f"{theirs.machine}'s clock is {abs(ahead_s):.0f} s {direction} {host.machine}'s: logs would not fit together",
        fix=f"on {where}: {fix}, then join again",
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


def _version(facts: Introduction, package: str) -> str:
    return facts.versions.get(package, "missing")


def _named(facts: Introduction, packages: Sequence[str]) -> str:
    return " and ".join(f"{title(package)} {_version(facts, package)}" for package in packages)
