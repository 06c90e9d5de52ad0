"""The console that commands print tables and lines with: text from other machines cannot control the terminal."""

from collections.abc import Iterable

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from potluck.core.environment import is_in_notebook
from potluck.core.printable import printable


class Console(RichConsole):
    """Rich's console, with control characters in any text shown as escapes. Rich's own colours stay."""

    @property
    def is_terminal(self) -> bool:
        """Whether lines can be drawn again. A notebook's cell cannot, although its kernel offers a terminal."""
        return super().is_terminal and not is_in_notebook()

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Rich's segments, with control characters in their text escaped."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)
