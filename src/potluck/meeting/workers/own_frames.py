"""Runs in the fork server: reduces a traceback to the frames of the script author's own files."""

import re
import sysconfig
from pathlib import Path

import potluck

_FRAME = re.compile(r'^  File "(?P<path>[^"]*)", line \d+')
_POTLUCK = str(Path(potluck.__file__).parent)
_LIBRARIES = {_POTLUCK, *(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib"))}


def own_frames(traceback: str, folder: Path) -> str:
    """The traceback without frames of Python's library, installed packages and Potluck; paths begin in `folder`.

    Each of several chained exceptions keeps its own frames. An exception without frames of the author's files keeps
    its last frame, which says where it happened.
    """
    kept: list[str] = []
    frames: list[list[str]] = []  # of the current exception, each with its source lines
    for line in traceback.splitlines():
        if _FRAME.match(line):
            frames.append([line])
        elif frames and line.startswith("  "):
            frames[-1].append(line)
        else:
            kept += _chosen(frames, folder)
            kept.append(line)
            frames = []
    return "\n".join([*kept, *_chosen(frames, folder)])


def _chosen(frames: list[list[str]], folder: Path) -> list[str]:
    own = [frame for frame in frames if not _is_of_a_library(frame[0], folder)] or frames[-1:]
    return [line for head, *source in own for line in (head.replace(f'"{folder}/', '"', 1), *source)]


def _is_of_a_library(head: str, folder: Path) -> bool:
    match = _FRAME.match(head)
    path = match["path"] if match else ""
    if path.startswith(f"{folder}/"):
        return False
    return path.startswith("<frozen ") or any(path.startswith(f"{library}/") for library in _LIBRARIES)
