"""Machines of many kinds, and how to change one."""

from pathlib import Path

import msgspec
from msgspec.structs import replace

from potluck.doctor.finding import Finding, is_trouble
from potluck.machine.facts import Facts, Resolved

FOLDER = Path(__file__).with_name("snapshots")
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def snapshot(name: str) -> Facts:
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Facts)


def with_variables(facts: Facts, **variables: str) -> Facts:
    return replace(facts, variables=variables)


def knowing(facts: Facts, **names: str) -> Facts:
    """The machine, with what these names mean on it; an empty meaning is an unknown name."""
    known = [
        Resolved(name=n, addresses=(a,)) if a else Resolved(name=n, error="no such name") for n, a in names.items()
    ]
    return replace(facts, names=(*facts.names, *known))


def troubles(findings: list[Finding]) -> list[Finding]:
    """What somebody should do something about."""
    return [finding for finding in findings if is_trouble(finding)]
