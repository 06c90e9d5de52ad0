"""Reads small regular files; a folder, a pipe or a huge file in the place of one raises OSError."""

import errno
import os
import stat
from pathlib import Path
from typing import IO

MOST_BYTES = 64 << 20
# For os.open: other programs that this process starts do not get the file, and Windows leaves its line ends alone.
OWN_BYTES = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_plain(path: Path) -> IO[bytes]:
    """Open a regular file for reading; OSError for a folder or a pipe, without waiting for the pipe's writer."""
    descriptor = os.open(path, os.O_RDONLY | OWN_BYTES | getattr(os, "O_NONBLOCK", 0))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a plain file", str(path))


def read_plain(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The whole content of a regular file; OSError if it is larger than `most_bytes`."""
    with open_plain(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes", str(path))
    return content


def what_happened(error: OSError) -> str:
    """The system's error message without the path: callers put the path in front."""
    return (error.strerror or str(error)).lower()
