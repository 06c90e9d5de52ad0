"""Errors that say what happened and what to type next.

PotluckError
├── UsageError         the training script calls Potluck in an order that cannot work
├── SettingsError      a flag, a YAML key or a value
├── WorkloadError      a model or dataset that cannot be built
├── DataError          a data file that is missing, damaged or of another kind
├── RunFolderError     the folder of a run
├── DiskError          a disk that is full or cannot be written
├── EventLogError      an event file that cannot be read
├── CheckpointError    a checkpoint that cannot be written or read
├── GroupError         workers that cannot reach each other or do not fit together
├── GateError          a gate's port, key or addresses that cannot be used
├── MeetingError       a host that cannot be joined or asked, or a machine that it cannot use
├── ShippingError      a file that cannot be copied to the host as it is
├── SharingError       a folder of data that cannot be brought to other machines
├── BundleError        a script's folder that cannot travel, or one that arrived and is not trusted
├── ReportError        a report, a comparison or a page that cannot be made as asked
├── ServiceError       a service of systemd that cannot be written, started or removed
├── PlanError          a batch that cannot be split as asked
└── MeasureError       something that cannot be measured, or a profile that cannot be read
"""

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


_FEW = 8  # up to this many known names, a fix lists them all
_CLOSE = 0.6  # of difflib's ratio


class PotluckError(Exception):
    """An error that a user can fix: the message says what happened, `fix` what to type."""

    def __init__(self, message: str, *, fix: str) -> None:
        super().__init__(message)
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.args[0]}\n  fix: {self.fix}"


class UsageError(PotluckError):
    """The training script calls Potluck in an order that cannot work."""


class SettingsError(PotluckError):
    """A flag, a YAML key or a value that Potluck does not take."""


class WorkloadError(PotluckError):
    """A model or dataset that cannot be built."""


class DataError(PotluckError):
    """A data file that is missing, damaged or of another kind."""


class RunFolderError(PotluckError):
    """The folder of a run cannot be used as asked."""


class DiskError(PotluckError):
    """A disk is full, or cannot be written."""


class EventLogError(PotluckError):
    """An event file is damaged, or another process writes it."""


class CheckpointError(PotluckError):
    """A checkpoint cannot be written or read."""


class GroupError(PotluckError):
    """Workers cannot reach each other, or do not fit together."""


class GateError(PotluckError):
    """A gate's port, key or addresses cannot be used."""


class MeetingError(PotluckError):
    """A host cannot be joined or asked, or a machine cannot be used."""


class ShippingError(PotluckError):
    """A file of a run cannot be copied to the host as it is."""


class SharingError(PotluckError):
    """A folder of data that cannot be brought to other machines."""


class BundleError(PotluckError):
    """A script's folder cannot travel, or one that arrived is not trusted."""


class ReportError(PotluckError):
    """A report, a comparison or a page cannot be made as asked."""


class ServiceError(PotluckError):
    """A service of systemd cannot be written, started or removed."""


class PlanError(PotluckError):
    """A global batch cannot be split as asked."""


class MeasureError(PotluckError):
    """Something cannot be measured, or a profile cannot be read."""


def is_close(word: str, known: "Iterable[str]") -> bool:
    """Whether the word may be one of these, mistyped or not."""
    return bool(get_close_matches(word, list(known), n=1, cutoff=_CLOSE))


def did_you_mean(word: str, known: "Iterable[str]") -> str:
    """A fix for a mistyped name: the closest known name, and all known names if they are few or none is close."""
    known = sorted(known)
    close = get_close_matches(word, known, n=1, cutoff=_CLOSE)
    choice = f"choose one of: {', '.join(known)}"
    if close and len(known) <= _FEW:
        return f"did you mean {close[0]!r}? {choice}"
    return f"did you mean {close[0]!r}?" if close else choice
