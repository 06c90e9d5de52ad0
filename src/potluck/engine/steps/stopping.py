"""Ctrl-C and SIGTERM: the first signal requests an orderly stop after the step, the second ends the process at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(SystemExit):
    """Training has stopped on request; the state is saved. The process exits with 128 + the signal's number."""


class StopRequest:
    """Whether a signal or the script has requested a stop."""

    def __init__(self) -> None:
        self.signal_number = 0

    def __bool__(self) -> bool:
        return self.signal_number > 0

    @property
    def exit_code(self) -> int:
        return 128 + self.signal_number

    def ask(self, signal_number: int = signal.SIGINT) -> None:
        self.signal_number = int(signal_number)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, signals become a stop request; only on the main thread, and the script's own handlers stay."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        replaced = {}
        for number in SIGNALS:
            before = signal.getsignal(number)
            if before in (signal.default_int_handler, signal.SIG_DFL):
                replaced[number] = before
                signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number, before in replaced.items():
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, before)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if not self:
            self.ask(number)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise SystemExit(128 + number)
