"""An orderly stop on request: after the open step, or without that step if it does not end in time."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import NoReturn

from potluck.engine.steps.parts import RunParts
from potluck.engine.steps.saving import Saving
from potluck.engine.steps.stop_deadline import StopDeadline
from potluck.engine.steps.stopping import Stopped, StopRequest
from potluck.engine.steps.training_position import TrainingPosition


class OrderlyStop:
    """Saves the state and ends training; `undo` reverts what optimizers changed in a step that is abandoned."""

    def __init__(self, parts: RunParts, position: TrainingPosition, saving: Saving, undo: Callable[[], None]) -> None:
        self.request = StopRequest()
        self.deadline = StopDeadline(self._end_without_step)
        self.was_stopped = False
        self._parts = parts
        self._position = position
        self._saving = saving
        self._undo = undo

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, Ctrl-C and SIGTERM request a stop; if steps wait for other workers, the stop has a deadline."""
        with self.request.listening(), self.deadline.watching() if self._parts.group.waits else nullcontext():
            yield

    def stop_here(self) -> NoReturn:
        """Save and stop, between two steps."""
        self._saving.save_before_stop()
        self.was_stopped = True
        self._parts.journal.say(f"{self._stopped_after()}{self._saving.tell_where()}")
        raise Stopped(self.request.exit_code)

    def _end_without_step(self, signal_number: int) -> None:
        """Abandon the open step: save the state of the last committed step, and end the process."""
        self._undo()
        self._saving.wait()
        self._saving.save_before_end()
        journal = self._parts.journal
        where = self._saving.tell_where()
        journal.say(f"{self._stopped_after()}, without the step that was not done in time{where}")
        journal.end("stopped", "", self._position.step)
        os._exit(128 + signal_number)

    def _stopped_after(self) -> str:
        """The start of the notice, with this machine's name if several machines may print one."""
        who = f"{self._parts.journal.state.machine} " if self._parts.group.waits else ""
        return f"{who}stopped after step {self._position.step} of {self._position.last_step}"
