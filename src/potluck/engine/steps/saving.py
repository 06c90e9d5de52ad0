"""Saves the checkpoints of a run: which state under which name, and the events about them."""

import math
import time
from collections.abc import Callable
from typing import Any

from potluck.core.checkpoint_names import checkpoint_name
from potluck.core.disk import is_full
from potluck.core.errors import CheckpointError
from potluck.engine.checkpoints.checkpoints import Saved
from potluck.engine.steps.parts import RunParts
from potluck.engine.steps.training_position import TrainingPosition
from potluck.events import types as events

_SAVE_AGAIN_S = 20.0
_LAST_SAVE_S = 30.0
_STOP_SAVE_S = 4.0  # a person who asks for a stop does not wait long
_LOOK_S = 0.5


class Saving:
    """Saves the state between two steps, if this worker is the one that writes checkpoints."""

    def __init__(
        self,
        parts: RunParts,
        position: TrainingPosition,
        capture: Callable[[], dict[str, Any]],
        for_file: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        self._folder = parts.folder
        self._journal = parts.journal
        self._group = parts.group
        self._writer = parts.writer
        self._position = position
        self._saved_step = position.step
        self._save_again_at = math.inf
        self._capture_state = capture
        self._for_file = for_file

    @property
    def is_to_be_tried_again(self) -> bool:
        """Whether a checkpoint failed because of a full disk, and it is time to try again."""
        return time.monotonic() > self._save_again_at

    def save(self) -> None:
        """Start to save in the background."""
        if self._group.writes and not self._is_spoiled():
            self.wait()
            self._save_again_at = math.inf
            self._writer.save(self._name(), self._position.step, self._capture())
            self._saved_step = self._position.step

    def save_at_the_end(self) -> None:
        """Called when the script ends training: save the steps that no checkpoint has, and wait for the file."""
        self._save_now(_LAST_SAVE_S)

    def save_before_stop(self) -> None:
        """Save the last step unless it is saved already, and wait until the file is there."""
        if self._saved_step != self._position.step:
            self.save()
        self.wait()
        self._save_now(_STOP_SAVE_S)

    def save_before_end(self) -> None:
        """Save the last committed state while an abandoned step is open."""
        if self._has_news():
            state = self._group.between_steps(self._capture())
            self._note(self._writer.save_now(self._name(), self._position.step, state))

    def _capture(self) -> dict[str, Any]:
        return self._for_file(self._capture_state())

    def _has_news(self) -> bool:
        """Whether this worker has to save a step that no checkpoint has."""
        return self._position.step > self._saved_step and self._group.writes and not self._is_spoiled()

    def _save_now(self, patience_s: float) -> None:
        """Save what no checkpoint has, on this thread; wait up to `patience_s` for space on a full disk."""
        if not self._has_news():
            return
        step = self._position.step
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self._note(self._writer.save_now(self._name(), step, self._capture()))
            except CheckpointError as error:
                if not is_full(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_S)
            else:
                self._saved_step = step
                return

    def tell_where(self) -> str:
        """The end of a sentence that says where the state is saved; empty if another worker writes the checkpoints."""
        if not self._group.writes:
            return ""
        if self._is_spoiled():
            return (
                f"; nothing is saved, because the loss is not a number since step {self._journal.state.diverged_since}"
            )
        return f"; saved {self._folder.checkpoints_dir / self._name()}"

    def _is_spoiled(self) -> bool:
        """Whether the loss is not finite: then nothing is saved, so that the newest checkpoint stays usable."""
        state = self._journal.state
        return bool(state.diverged_since) and state.loss is None

    def look(self) -> None:
        """Write the event of a checkpoint that has reached the disk since the last call, if any."""
        self._take_note(self._writer.poll)

    def wait(self) -> None:
        """Wait for the checkpoint that is being written, and write its event."""
        self._take_note(self._writer.wait)

    def _take_note(self, look: Callable[[], Saved | None]) -> None:
        """Write the event of a saved checkpoint; if the disk was full, write a notice and schedule the next try."""
        try:
            self._note(look())
        except CheckpointError as error:
            if not is_full(error):
                raise
            self._journal.say(
                f"{error.args[0]}; training goes on, and a checkpoint is tried again every {_SAVE_AGAIN_S:.0f} s"
            )
            self._saved_step, self._save_again_at = 0, time.monotonic() + _SAVE_AGAIN_S

    def _note(self, saved: Saved | None) -> None:
        if saved is not None:
            self._journal.emit(
                events.CheckpointSaved(
                    step=saved.step, file=saved.path.name, num_bytes=saved.num_bytes, seconds=saved.seconds
                )
            )

    def _name(self) -> str:
        step, order = self._position.step, self._position.order
        epoch = order.epoch_of(max(0, step - 1)) + 1
        return checkpoint_name(epoch, step, epoch_is_complete=step > 0 and order.begins_epoch(step))
