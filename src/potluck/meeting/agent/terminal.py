"""What an agent tells the person at its machine."""

from collections.abc import Callable, Sequence

from potluck.meeting.new_lines import NewLines


class AgentTerminal:
    """Lines that stay, each trouble once while it lasts, and one line of state."""

    def __init__(self, tell: Callable[[str], None], show: Callable[[str], None]) -> None:
        self.tell = tell
        self.show = show
        self._trouble_here = ""
        self._trouble_of_host = NewLines()

    def tell_trouble(self, text: str) -> None:
        """Trouble of this machine's own."""
        if text != self._trouble_here:
            self._trouble_here = text
            self.tell(text)

    def tell_troubles_of_host(self, lines: Sequence[str]) -> None:
        """What the host's orders name as trouble."""
        for line in self._trouble_of_host.of(lines):
            self.tell(line)
