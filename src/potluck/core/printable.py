"""Text from other machines and from files, made safe to print: it cannot move the cursor, hide or rename anything."""

import re
from typing import Any

# Colours are the only control sequences that scripts print by the thousand: they go without a trace.
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# Control characters but for newline and tab, half surrogates, line separators, and what turns the writing direction.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with every control character as its escape: ESC becomes the four letters \\x1b."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(_escape, _COLOUR.sub("", text).replace("\r\n", "\n"))


def printable_data(data: Any) -> Any:
    """Plain data (as JSON gives it) with every string in it made printable, keys too."""
    match data:
        case str():
            return printable(data)
        case list():
            return [printable_data(item) for item in data]
        case dict():
            return {printable_data(key): printable_data(value) for key, value in data.items()}
    return data


def _escape(found: "re.Match[str]") -> str:
    return found[0].encode("unicode_escape").decode()
