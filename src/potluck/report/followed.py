"""A run that several readers look at again and again: read once, then only what is new; damage is kept, not raised."""

from dataclasses import dataclass, field
from threading import Lock

from potluck.core.errors import PotluckError
from potluck.report.view import RunView


@dataclass(slots=True)
class Followed:
    """A run's view, and what is wrong with it if it cannot be read. Who looks at the view holds the lock."""

    view: RunView
    error: PotluckError | None = None
    lock: Lock = field(default_factory=Lock)

    def refresh(self) -> None:
        """Read what is new; a run that could not be read once is not tried again."""
        with self.lock:
            if self.error is None:
                try:
                    self.view.refresh()
                except PotluckError as error:
                    self.error = error
