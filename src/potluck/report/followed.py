"""A view of a run that several readers share: a refresh reads only new events; an error is kept, not raised."""

from dataclasses import dataclass, field
from threading import Lock

from potluck.core.errors import PotluckError
from potluck.report.view import RunView


@dataclass(slots=True)
class Followed:
    """A run's view, and the error if the run cannot be read. A reader holds the lock while it uses the view."""

    view: RunView
    error: PotluckError | None = None
    lock: Lock = field(default_factory=Lock)

    def refresh(self) -> None:
        """Read new events; a run that once could not be read is not tried again."""
        with self.lock:
            if self.error is None:
                try:
                    self.view.refresh()
                except PotluckError as error:
                    self.error = error
