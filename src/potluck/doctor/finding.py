"""What a check says: how it is, why it matters, and what to type on which machine."""

import shlex
from collections.abc import Iterable, Sequence

import msgspec

from potluck.machine.facts import Facts

OK, WARN, FAIL, UNKNOWN = "ok", "warn", "fail", "unknown"
BASH, POWERSHELL, BY_HAND = "bash", "powershell", ""
_WORST_FIRST = {FAIL: 0, WARN: 1, UNKNOWN: 2, OK: 3}


class Fix(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One way to mend it. `commands` are typed as they are; without any, `note` says what to do by hand."""

    machine: str
    note: str = ""
    shell: str = BY_HAND
    commands: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    needs_administrator: bool = False


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One check on one machine."""

    id: str
    machine: str
    status: str
    what: str
    why: str = ""
    fixes: tuple[Fix, ...] = ()


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Failures, warnings, what is unknown, then what is well; equal ones stay in order."""
    return sorted(findings, key=lambda finding: _WORST_FIRST[finding.status])


def is_trouble(finding: Finding) -> bool:
    """Whether somebody should do something about it."""
    return finding.status in (FAIL, WARN)


def bash(facts: Facts, *commands: str, note: str = "", root: bool = False, undo: Sequence[str] = ()) -> Fix:
    """Lines for a shell of that machine; with `root` they get sudo, unless it is root's shell anyway."""
    sudo = "sudo " if root and not facts.system.is_administrator else ""
    return Fix(
        machine=facts.machine,
        note=note,
        shell=BASH,
        commands=tuple(sudo + command for command in commands),
        undo=tuple(sudo + command for command in undo),
        needs_administrator=root,
    )


def powershell(facts: Facts, *commands: str, note: str = "", admin: bool = False, undo: Sequence[str] = ()) -> Fix:
    """Lines for PowerShell on the Windows of that machine."""
    return Fix(
        machine=facts.machine,
        note=note,
        shell=POWERSHELL,
        commands=commands,
        undo=tuple(undo),
        needs_administrator=admin,
    )


def in_one_line(fix: Fix) -> str:
    """A fix for the end of a sentence."""
    if fix.shell == POWERSHELL:
        return f"in PowerShell{' as administrator' if fix.needs_administrator else ''}: {'; '.join(fix.commands)}"
    return " && ".join(fix.commands) or fix.note


def by_hand(machine: str, note: str) -> Fix:
    """Something that no command does."""
    return Fix(machine=machine, note=note)


def _set_back(name: str, before: str | None) -> str:
    return f"unset {name}" if before is None else f"export {name}={shlex.quote(before)}"


def export(facts: Facts, **variables: str) -> Fix:
    """Variables for the shell that starts training."""
    return Fix(
        machine=facts.machine,
        note="in the shell that starts training",
        shell=BASH,
        commands=tuple(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
        undo=tuple(_set_back(name, facts.variables.get(name)) for name in variables),
    )
