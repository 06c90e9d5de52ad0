"""What an agent prints for the person at its machine."""

from collections.abc import Callable, Sequence

from potluck.meeting.new_lines import NewLines


class AgentTerminal:
    """Prints lines that stay (`tell`), each trouble once while it lasts, and shows one status line (`show`)."""

    def __init__(self, tell: Callable[[str], None], show: Callable[[str], None]) -> None:
        self.tell = tell
        self.show = show
        self._trouble_here = ""
        self._trouble_of_host = NewLines()

    def tell_trouble(self, text: str) -> None:
        """Print trouble that this machine has met, unless it was the last one printed."""
        if text != self._trouble_here:
            self._trouble_here = text
            self.tell(text)

    def tell_troubles_of_host(self, lines: Sequence[str]) -> None:
        """Print the trouble lines of the host's orders that are new."""
        for line in self._trouble_of_host.of(lines):
            self.tell(line)
