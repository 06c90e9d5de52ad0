"""A model inside a group: its gradients are exchanged, peers read its state, and a peer's state may replace it."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from potluck.core.errors import UsageError
from potluck.engine.compute.fingerprint import fingerprint
from potluck.engine.compute.frozen import FrozenPart, without
from potluck.engine.compute.outer_step import OuterStep
from potluck.engine.compute.tensor_bytes import digest_of
from potluck.engine.group.gradients import GradientExchange
from potluck.engine.group.place import States
from potluck.engine.group.round_start import RoundStart


class SharedModel:
    """A model, the exchange of its gradients, and access to the script's whole training state."""

    def __init__(
        self,
        model: nn.Module,
        exchange: GradientExchange,
        states: States,
        *,
        is_several: bool,
        outer: OuterStep | None = None,
    ) -> None:
        self.exchange = exchange
        self.outer = outer
        self.round_start: RoundStart | None = None
        """The state at the beginning of the open round, if one is open."""
        self.history = ""
        """See roster.StateDigest."""
        self.fingerprint = fingerprint(model)
        self.state_bytes = 4 * sum(p.numel() * p.element_size() for p in model.parameters())
        self._model = model
        self._states = states
        self._passage = None if is_several else Passage(model, exchange.wrapped)

    @property
    def wrapped(self) -> nn.Module:
        """The module that the script's forward pass calls."""
        return self.exchange.wrapped if self._passage is None else self._passage

    def exchange_in(self, *, this_pass: bool, is_alone: bool) -> None:
        """Set how the next pass runs: past DDP if alone, else through DDP, with all-reduce (`this_pass`) or without."""
        if self._passage is not None:
            self._passage.is_straight, self._passage.was_used = is_alone, False
        self.exchange.exchange_in(this_pass=this_pass and not is_alone)

    def check_passage(self) -> None:
        """Refuse a batch whose forward pass went past DDP: its gradients would stay on this machine."""
        if self._passage is not None and not self._passage.was_used:
            raise UsageError(
                "the loss was not computed by the model that run.prepare returned, in training mode: its gradients "
                "would not reach the other machines",
                fix="call that model, not model.module or the model from before run.prepare, and model.train() first; "
                "layers that are to stay in evaluation mode get layer.eval() after that",
            )

    def heal(self, state: dict[str, Any]) -> None:
        """Replace this worker's state by a peer's, in the middle of a step."""
        self._states.replace({name: part for name, part in state.items() if name != "history"})
        self.round_start = None
        self.exchange.remember()  # if the step is spoiled, these are the buffers to go back to
        self.history = state.get("history", "")
        self.__dict__.pop("weights", None)
        if not self.history:
            _ = self.weights  # before a round moves the parameters

    def whole_state(self) -> dict[str, Any]:
        """The training state after the last committed step, also while a step is open."""
        return {**self.between_steps(self._states.read()), "history": self.history}

    def frozen(self) -> Mapping[str, FrozenPart]:
        """What of the model no step changes, by name."""
        return self._states.frozen()

    def values(self) -> Mapping[str, Tensor]:
        """Parameters and buffers by name."""
        return self._states.values()

    def committed(self, step: int, quorum_id: int, workers: Sequence[str]) -> None:
        """Add a commit to this worker's history: which step it was, and who trained it."""
        commit = f"{self.history} {step} {quorum_id} {' '.join(workers)}"
        self.history = hashlib.sha256(commit.encode()).hexdigest()[:16]

    def between_steps(self, state: dict[str, Any]) -> dict[str, Any]:
        """Turn a state that was captured inside an open step into the state before that step."""
        state = {**state, "model": self.exchange.between_steps(state["model"])}
        return state if self.round_start is None else self.round_start.instead_of(state)

    def begin_round(self) -> None:
        """Remember the state that all workers have in common; peers get this state until the round ends."""
        assert self.outer is not None
        self.outer.begin()
        self.round_start = RoundStart.of(self._states.read(), self.outer)

    def end_round(self) -> None:
        """The round is over: this worker's state is the common one."""
        self.round_start = None

    @cached_property
    def weights(self) -> str:
        """A digest of the parameters' values before this worker's first committed step."""
        frozen = self.frozen()
        changing = digest_of(without(self._model.state_dict(), frozen).values())
        if not frozen:
            return changing
        return hashlib.sha256(f"{changing} {[part.digest for part in frozen.values()]}".encode()).hexdigest()[:16]


class Passage(nn.Module):
    """A model's forward pass: through DDP, whose backward exchanges gradients, or straight through the model."""

    _ways: tuple[nn.Module, nn.Module]

    def __init__(self, model: nn.Module, exchanging: nn.Module) -> None:
        super().__init__()
        # Not submodules: the model belongs to the script, and its parameters would be listed twice.
        object.__setattr__(self, "_ways", (exchanging, model))
        self.is_straight = False
        self.was_used = False
        """Whether there was a forward pass since `exchange_in`."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.was_used = True
        return self._ways[self.is_straight](*args, **kwargs)
