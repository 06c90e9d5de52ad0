"""The limit of open files and connections: raised as far as the system allows, and the error when it is reached."""

import errno
import resource
from contextlib import suppress

_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)


def raise_file_limit() -> None:
    """Raise the soft limit to the hard limit: many systems start programs with a soft limit of only 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def is_out_of_files(error: OSError) -> bool:
    """Whether the error means that no file descriptor is left for a new connection."""
    return error.errno in _OUT_OF_FILES


def out_of_files() -> str:
    """The message for the user, with the fix."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"all {limit} files and connections that this process may have are in use; new ones wait\n"
        "  fix: end it, raise the limit (ulimit -n 65536) and start it again"
    )
