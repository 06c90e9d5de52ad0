"""Recognise known error texts in a log, and give their cause and fix with the machine's name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from potluck.doctor.known_error import KnownError
from potluck.doctor.known_errors import KNOWN_ERRORS

_ADDRESS = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})(?![\d.])")
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A log line with a known error, its cause and its fix."""

    id: str
    line_number: int
    line: str
    cause: str
    fix: str


def explain(text: str, names: Mapping[str, str] | None = None) -> list[Explanation]:
    """Explain the known errors in a log: each id once, at its first line. `names` maps addresses to machines."""
    lines = text.splitlines()
    found: dict[str, Explanation] = {}
    for number, line in enumerate(lines, start=1):
        for known in KNOWN_ERRORS:
            match = known.pattern.search(line)
            if match is not None:
                if known.id not in found:
                    found[known.id] = _explanation(known, match, number, line, names or {})
                break
    if "hidden-traceback" in found:
        found["hidden-traceback"] = _with_traceback(found["hidden-traceback"], lines)
    return list(found.values())


def name_addresses(line: str, names: Mapping[str, str]) -> str:
    """The line, with the machine's name in brackets after each known address."""

    def named(match: re.Match[str]) -> str:
        return f"{match[1]} ({names[match[1]]})" if match[1] in names else match[1]

    return _ADDRESS.sub(named, line)


def _explanation(
    known: KnownError, match: re.Match[str], number: int, line: str, names: Mapping[str, str]
) -> Explanation:
    groups = match.groupdict()
    address = next(iter(_ADDRESS.findall(line)), None)
    words = {
        "machine": names.get(address, address) if address else "the other machine",
        "came": groups.get("came") or groups.get("came2") or "",
        "wanted": groups.get("wanted") or groups.get("wanted2") or "",
        "name": groups.get("name") or "NAME",
    }
    return Explanation(
        id=known.id,
        line_number=number,
        line=name_addresses(line.strip(), names),
        cause=known.cause.format(**words),
        fix=known.fix.format(**words),
    )


def _with_traceback(hidden: Explanation, lines: list[str]) -> Explanation:
    """Point at the last line of the first traceback: the error that caused the others."""
    start = next((index for index, line in enumerate(lines) if _TRACEBACK in line), None)
    if start is None:
        return hidden
    # The lines of one traceback share a prefix that a launcher may have put there: [rank0]: or [default0]:
    prefix = lines[start].partition(_TRACEBACK)[0]
    for number, line in enumerate(lines[start + 1 :], start=start + 2):
        body = line.removeprefix(prefix)
        if body and not body.startswith((" ", "\t")):
            return Explanation(
                id=hidden.id,
                line_number=number,
                line=line.strip(),
                cause="torchrun hides the worker's own error; this is the first one",
                fix="mend that; the worker's traceback ends at this line",
            )
    return hidden
