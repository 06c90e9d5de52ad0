"""Closes a run at the end of the script's `with` block, after an exception, or at the end of the process."""

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack

from potluck.core.exit_codes import DIVERGED
from potluck.core.states import Ending
from potluck.engine.steps.divergence import Diverged, ending
from potluck.engine.steps.parts import RunParts
from potluck.engine.steps.progress import Progress


class RunClosing:
    """Closes a run once: saves the last checkpoint, writes the last event, closes files and threads."""

    def __init__(self, parts: RunParts, progress: Progress, close_loader: Callable[[], None]) -> None:
        self._parts = parts
        self._progress = progress
        self._close_loader = close_loader
        self._is_closed = False
        atexit.register(self._close_at_exit)

    def close(self, error: BaseException | None) -> None:
        """Close the run; a second call does nothing. `error`: the exception that ended training, if any."""
        if self._is_closed:
            return
        self._is_closed = True
        atexit.unregister(self._close_at_exit)
        problem = error
        with ExitStack() as stack:  # files and threads are closed whatever else fails
            stack.callback(self._parts.journal.close)
            stack.callback(self._parts.group.close)
            stack.callback(self._parts.writer.close)
            try:
                self._finish_work(is_orderly=error is None)
            except Exception as failure:  # noqa: BLE001  raised below, unless there is an earlier one
                problem = problem or failure
            try:
                self._parts.journal.end(*self._ending(problem), self._progress.settled())
            except Exception as failure:  # noqa: BLE001
                problem = problem or failure
        if problem is not None and problem is not error:
            raise problem

    def leave_block(self, error: BaseException | None) -> None:
        """Close the run when the script leaves its `with` block; raise Diverged if the loss has diverged."""
        self.close(error)
        if error is None and self._ends_as_diverged():
            raise Diverged(DIVERGED)

    def _close_at_exit(self) -> None:
        error = getattr(sys, "last_value", None)
        self.close(error)
        if error is None and self._ends_as_diverged():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(DIVERGED)  # an exit handler cannot change the exit code in any other way

    def _ends_as_diverged(self) -> bool:
        """Whether this process exits with DIVERGED: alone, under torchrun, or as one of the workers of a RANK launch.

        On joined machines the command that started the run does; from a worker that code would mean a crash.
        """
        has_diverged = bool(self._parts.journal.state.diverged_since)
        return has_diverged and not self._parts.has_agent and not self._progress.stopping.was_stopped

    def _finish_work(self, *, is_orderly: bool) -> None:
        self._close_loader()
        self._progress.saving.wait()
        if self._parts.tracer is not None:
            self._parts.tracer.close(self._progress.position.step)
        if is_orderly:
            self._progress.save_what_is_new()
            if self._progress.is_finished:
                self._parts.group.finish()

    def _ending(self, error: BaseException | None) -> tuple[Ending, str]:
        if self._progress.stopping.was_stopped:
            return "stopped", ""
        if isinstance(error, KeyboardInterrupt | SystemExit):
            return "stopped", "ended at once, without saving"
        if error is not None:
            return "failed", f"{type(error).__name__}: {error.args[0] if error.args else ''}"
        early = "" if self._progress.is_finished else "the script ended training before the last step"
        return "finished", "; ".join(part for part in (early, ending(self._parts.journal.state)) if part)
