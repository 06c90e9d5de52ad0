"""Reads YAML that may be damaged or hostile: plain data of limited size, or a SettingsError."""

from pathlib import Path
from typing import Any

import yaml

from potluck.core.errors import SettingsError
from potluck.core.plain_file import read_plain, what_happened

_MOST_BYTES = 256 << 10
_MOST_BRACKETS = 1000
_MOST_NODES = 100_000
_MOST_DEPTH = 50


def read_yaml(path: Path) -> Any:
    """The file's content; anchors are allowed while the expanded content stays within the limits."""
    try:
        text = read_plain(path, _MOST_BYTES).decode()
        if text.count("[") + text.count("{") > _MOST_BRACKETS:  # PyYAML takes seconds for deep nesting
            raise ValueError("it holds too many brackets")
        content = yaml.safe_load(text)
    except FileNotFoundError:
        raise SettingsError(f"there is no file {path}", fix="check the path, for example after --config") from None
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read: {what_happened(error)}", fix="check the path, and who may read it: ls -l"
        ) from None
    except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, TypeError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise SettingsError(f"{path} is not YAML: {reason}", fix="write it as lines of `key: value`") from None
    if not _is_sensible(content):
        raise SettingsError(
            f"{path} is nested too deeply, or repeats itself without end", fix="write it as lines of `key: value`"
        )
    return content


def _is_sensible(content: Any) -> bool:
    """Whether the expanded content is within the limits of depth and size: an alias inside itself has no end."""
    num_nodes, level = 0, [content]
    for _ in range(_MOST_DEPTH):
        if not level:
            return True
        num_nodes += len(level)
        if num_nodes > _MOST_NODES:
            return False
        below: list[Any] = []
        for node in level:
            match node:
                case dict():
                    below += [*node.keys(), *node.values()]
                case list() | tuple() | set():
                    below += node
            if len(below) > _MOST_NODES:
                return False
        level = below
    return False
