"""Reading files that should be small and plain: a folder, a pipe or a huge file under their name is an OSError."""

import errno
import os
import stat
from pathlib import Path
from typing import IO

MOST_BYTES = 64 << 20


def open_plain(path: Path) -> IO[bytes]:
    """The file for reading. A pipe must not make its reader wait, and a folder is no file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a plain file", str(path))


def read_plain(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """All of the file, if that is not more than it can hold."""
    with open_plain(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes", str(path))
    return content


def what_happened(error: OSError) -> str:
    """The system's words, without the path: whoever tells of it names the path in front."""
    return (error.strerror or str(error)).lower()
