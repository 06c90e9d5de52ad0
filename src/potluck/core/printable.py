"""Makes text from other machines and files safe to print: it cannot move the cursor, or hide or disguise other text."""

import re
from typing import Any

# Scripts print colour sequences by the thousand: these are removed, not escaped.
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# Control characters except newline and tab, lone surrogates, line separators, and marks of the writing direction.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text without colours, and with every other control character escaped: ESC becomes the four letters \\x1b."""
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
