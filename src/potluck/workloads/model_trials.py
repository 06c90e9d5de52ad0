"""Trials of a built-in model: which way of doing the same maths is the fastest on this machine."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from potluck.measuring.compiled import Compiled, settle
from potluck.measuring.tuned_pass import has_images, make_trial, part_of
from potluck.measuring.tuning import Tuning
from potluck.measuring.tuning_trials import Numbers, Trial, compare_speed, find_tuning, try_way
from potluck.workloads.models.tasks import Task

Context = Callable[[], AbstractContextManager[Any]]


class ModelTrials:
    """Trials of a built-in model on a few samples."""

    def __init__(self, task: Task, network: nn.Module, device: torch.device, columns: tuple[Tensor, ...]) -> None:
        self.compiled: nn.Module | None = None
        """The network, compiled, once that was tried."""
        self._task = task
        self._network = network
        self._device = device
        self._columns = columns

    def find(self, context: Context, *, compiles: bool) -> Tuning:
        """The fastest way; `compiles`: try torch.compile, too, which may take a minute."""
        found = find_tuning(
            lambda part: self._make(self._network, context, part),
            has_images=has_images(self._columns, {}),
            is_on_cpu=self._device.type == "cpu",
        )
        if not compiles:
            return found
        self.compiled = Compiled(self._network)
        plain, other = self._make(self._network, context), self._make(self.compiled, context)

        def trial(tuning: Tuning) -> Numbers:
            return other(tuning) if tuning.is_compiled else plain(tuning)

        found = try_way(trial, found, replace(found, is_compiled=True), "compile")
        settle()
        return found

    def compare(self, context: Context, other: Context) -> float:
        """How many times as fast passes are in the other context."""
        return compare_speed(self._make(self._network, context), self._make(self._network, other))

    def _make(self, called: nn.Module, context: Context, part: float = 1.0) -> Trial:
        return make_trial(
            self._network,
            lambda *columns: self._task.loss(called, *columns)[0],
            device=self._device,
            forward_context=context,
            args=part_of(self._columns, part),
            kwargs={},
        )
