"""A finding: the result of a check on a machine, why it matters, and what to type on which machine to fix it."""

import shlex
from collections.abc import Iterable, Sequence

import msgspec

from potluck.machine.facts import Facts

OK, WARN, FAIL, UNKNOWN = "ok", "warn", "fail", "unknown"
BASH, POWERSHELL, BY_HAND = "bash", "powershell", ""
_WORST_FIRST = {FAIL: 0, WARN: 1, UNKNOWN: 2, OK: 3}


class Fix(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One way to fix a problem. The user types `commands` as they are; without any, `note` says what to do by hand."""

    machine: str
    note: str = ""
    shell: str = BY_HAND
    commands: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    needs_administrator: bool = False


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one check on one machine."""

    id: str
    machine: str
    status: str
    what: str
    why: str = ""
    fixes: tuple[Fix, ...] = ()


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Failures, warnings, unknown results, then passed checks; findings of one status keep their order."""
    return sorted(findings, key=lambda finding: _WORST_FIRST[finding.status])


def is_trouble(finding: Finding) -> bool:
    """Whether the user should act on the finding: it is a failure or a warning."""
    return finding.status in (FAIL, WARN)


def bash(facts: Facts, *commands: str, note: str = "", root: bool = False, undo: Sequence[str] = ()) -> Fix:
    """A fix by shell commands on one machine; `root` puts sudo before them, unless the doctor runs as root there."""
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
    """A fix by PowerShell commands on one machine's Windows."""
    return Fix(
        machine=facts.machine,
        note=note,
        shell=POWERSHELL,
        commands=commands,
        undo=tuple(undo),
        needs_administrator=admin,
    )


def powershell_quoted(text: str) -> str:
    """The text as one word of PowerShell."""
    return "'" + text.replace("'", "''") + "'"


def in_one_line(fix: Fix) -> str:
    """The fix as one line of text."""
    if fix.shell == POWERSHELL:
        return f"in PowerShell{' as administrator' if fix.needs_administrator else ''}: {'; '.join(fix.commands)}"
    return " && ".join(fix.commands) or fix.note


def by_hand(machine: str, note: str) -> Fix:
    """A fix that no command does: `note` says what to do."""
    return Fix(machine=machine, note=note)


def _set_back(name: str, before: str | None) -> str:
    return f"unset {name}" if before is None else f"export {name}={shlex.quote(before)}"


def export(facts: Facts, **variables: str) -> Fix:
    """A fix that sets environment variables in the shell that starts training; the undo restores the old values."""
    return Fix(
        machine=facts.machine,
        note="in the shell that starts training",
        shell=BASH,
        commands=tuple(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
        undo=tuple(_set_back(name, facts.variables.get(name)) for name in variables),
    )
