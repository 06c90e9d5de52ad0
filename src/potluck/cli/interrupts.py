"""Ctrl-C in the display of a run on several machines: it stops the run, or leaves the display alone."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from potluck.cli.display import TrainingDisplay
from potluck.core.errors import MeetingError
from potluck.events.state import RunState
from potluck.meeting.client.cluster import ClusterClient

_STOP_S = 10.0  # from Ctrl-C until this display ends, while the machines go on stopping


class _StopTakesLong(Exception):  # noqa: N818  not an error
    """The run has not ended within _STOP_S seconds after Ctrl-C."""


@contextmanager
def leaving_on_interrupt(run: str, display: TrainingDisplay, is_given_up: threading.Event) -> Iterator[None]:
    """Ctrl-C ends this display alone, without the summary of a run's end, and sets `is_given_up`."""
    try:
        yield
    except KeyboardInterrupt:
        is_given_up.set()
        display.state = RunState()
        display.say(
            f"detached: run {run} goes on; come back with: potluck attach {run}; end it with: potluck stop {run}"
        )


@contextmanager
def stopping_on_interrupt(
    cluster: ClusterClient, run: str, display: TrainingDisplay, is_given_up: threading.Event, what: str
) -> Iterator[None]:
    """The first Ctrl-C asks the host to stop the run; the second one interrupts this process as usual.

    If the run has not ended _STOP_S seconds after the first, this process stops waiting and sets `is_given_up`.
    """

    def ask(number: int, _: FrameType | None) -> None:
        signal.signal(number, before)
        display.say(f"stopping {what}; Ctrl-C again leaves this display while the machines go on stopping")
        signal.setitimer(signal.ITIMER_REAL, _STOP_S)
        try:
            with cluster.beside() as other:  # the display's own connection is waiting for news
                other.stop(run)
        except MeetingError as error:
            display.say(f"the run is not stopped: {error}")

    def give_up(*_: object) -> None:
        is_given_up.set()
        raise _StopTakesLong

    before = signal.signal(signal.SIGINT, ask)
    before_alarm = signal.signal(signal.SIGALRM, give_up)
    try:
        with suppress(_StopTakesLong):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before_alarm)
        signal.signal(signal.SIGINT, before)
