"""A stop that somebody asked for: after the open step, or without that step if it cannot be ended in time."""

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
    """Ends training with the state saved; `undo` takes back what optimizers changed in a step that is given up."""

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
        """While training runs, Ctrl-C and SIGTERM ask for a stop; a worker that waits for others has a deadline."""
        with self.request.listening(), self.deadline.watching() if self._parts.group.waits else nullcontext():
            yield

    def stop_here(self) -> NoReturn:
        """Between two steps."""
        self._saving.save_before_stop()
        self.was_stopped = True
        self._parts.journal.say(f"{self._stopped_after()}{self._saving.tell_where()}")
        raise Stopped(self.request.exit_code)

    def _end_without_step(self, signal_number: int) -> None:
        """The open step cannot be ended in time: save the state of the last committed one, and end the process."""
        self._undo()
        self._saving.wait()
        self._saving.save_before_end()
        journal = self._parts.journal
        where = self._saving.tell_where()
        journal.say(f"{self._stopped_after()}, without the step that was not done in time{where}")
        journal.end("stopped", "", self._position.step)
        os._exit(128 + signal_number)

    def _stopped_after(self) -> str:
        """With the machine's name for those who read what several machines say."""
        who = f"{self._parts.journal.state.machine} " if self._parts.group.waits else ""
        return f"{who}stopped after step {self._position.step} of {self._position.last_step}"
