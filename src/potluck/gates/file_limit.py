"""How many files and connections a process may have open: as many as the system lets it."""

import errno
import resource
from contextlib import suppress

_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)


def raise_file_limit() -> None:
    """Many systems start programs with 1,024, and let them ask for more."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def is_out_of_files(error: OSError) -> bool:
    """Whether there is no file descriptor left for a new connection."""
    return error.errno in _OUT_OF_FILES


def out_of_files() -> str:
    """One sentence for people, with the fix."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"all {limit} files and connections that this process may have are in use; new ones wait\n"
        "  fix: end it, raise the limit (ulimit -n 65536) and start it again"
    )
