"""What a Hugging Face Trainer has noted so far, as a part of the run's state."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from transformers import Trainer
from transformers.trainer_callback import ExportableState

# Of this machine only; and callbacks, whose states have a place of their own.
_LEFT_OUT = ("is_local_process_zero", "is_world_process_zero", "best_model_checkpoint", "stateful_callbacks")


class TrainerProgress:
    """The Trainer's state and its callbacks': log, best metric, early stopping.

    In checkpoints of the run, and handed to machines that join: all machines must stop at the same step, and any of
    them may be the one that writes the Trainer's files later.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        trainer = self._trainer
        names = (field.name for field in dataclasses.fields(trainer.state) if field.name not in _LEFT_OUT)
        return {
            "trainer": json.dumps({name: getattr(trainer.state, name) for name in names}),
            "callbacks": json.dumps({name: one.state()["attributes"] for name, one in self._callbacks()}),
            "loss_since_log": float(getattr(trainer, "_tr_loss", 0.0)),
            "loss_before_log": float(getattr(trainer, "_total_loss_scalar", 0.0)),
            "last_log": int(getattr(trainer, "_globalstep_last_logged", 0)),
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        trainer = self._trainer
        for name, value in json.loads(state["trainer"]).items():
            setattr(trainer.state, name, value)
        attributes = json.loads(state["callbacks"])
        for name, callback in self._callbacks():
            for attribute, value in attributes.get(name, {}).items():
                setattr(callback, attribute, value)
        if hasattr(trainer, "_tr_loss"):
            trainer._tr_loss.fill_(state["loss_since_log"])
        trainer._total_loss_scalar = state["loss_before_log"]
        trainer._globalstep_last_logged = state["last_log"]

    def _callbacks(self) -> Iterator[tuple[str, ExportableState]]:
        for callback in self._trainer.callback_handler.callbacks:
            if isinstance(callback, ExportableState):
                yield type(callback).__name__, callback
