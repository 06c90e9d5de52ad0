"""What a worker keeps through all quorums and GroupStates: its place, its ports, its model."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from torch import Tensor, nn

from potluck.engine.balance.balance import Balance
from potluck.engine.compute.frozen import FrozenPart
from potluck.engine.compute.outer_step import OuterStep
from potluck.engine.group.exchange_rule import ExchangeRule
from potluck.engine.group.forming import RosteredGroup
from potluck.engine.group.gloo import GlooOnDevice
from potluck.engine.group.gradient_wire import GradientWire
from potluck.engine.group.gradients import GradientExchange
from potluck.engine.group.last_commit import LastCommit
from potluck.engine.group.listening import open_gloo
from potluck.engine.group.membership import Membership
from potluck.engine.group.nccl import NcclGroups
from potluck.engine.group.notices import GroupNotices
from potluck.engine.group.place import Place, States
from potluck.engine.group.several_gradients import SeveralExchange
from potluck.engine.group.shared_model import SharedModel
from potluck.engine.group.timeouts import StepTimeout
from potluck.engine.group.waits import LongWaits
from potluck.events.types import AnyEvent
from potluck.measuring.step_timer import StepTimer

_FORM_S = 10.0


class Connection:
    """One worker's connection to the others. All GroupStates use the same Connection, one at a time."""

    def __init__(
        self,
        place: Place,
        *,
        say: Callable[[str], None],
        tell: Callable[[AnyEvent], None],
        leave: Callable[[], None],
        balance: Balance,
        timer: StepTimer,
    ) -> None:
        self.place = place
        self.balance = balance
        self.timer = timer
        self.notices = GroupNotices(place, say, tell)
        self.timeout = StepTimeout()
        device, gloo_line, self.gradient_address = open_gloo(place.listening)
        self.nccl = NcclGroups(place.machine, place.lan_address, place.nccl_log)
        self.process_group = RosteredGroup(
            timedelta(seconds=_FORM_S),
            place.backend,
            place.secret,
            lambda timeout: GlooOnDevice(timeout, device),
            self.nccl,
        )
        self.enlist()
        self.waits = LongWaits(self._tell_wait)
        self.is_stopping: Callable[[], bool] = bool
        self.told_step = 0
        """The step that Waiting events name; 0 before the first committed step."""
        self.last_commit = LastCommit()
        self._model: SharedModel | None = None
        self._closing = ExitStack()
        self._closing.callback(leave)
        if gloo_line is not None:
            self._closing.callback(gloo_line.close)

    def enlist(self) -> None:
        """Make a new Membership, which the lighthouse does not know yet."""
        states = States(read=self._read_state, replace=self._heal, frozen=self._find_frozen, values=self._values)
        self.membership = Membership(self.place, self.process_group, states, self.notices.say)

    def _read_state(self) -> dict[str, Any]:
        return self.model.whole_state()

    def _find_frozen(self) -> Mapping[str, FrozenPart]:
        return self.model.frozen()

    def _values(self) -> Mapping[str, Tensor]:
        return self.model.values()

    def _heal(self, state: dict[str, Any]) -> None:
        self.model.heal(state)

    @property
    def model(self) -> SharedModel:
        assert self._model is not None, "wrap comes first"
        return self._model

    def wrap(
        self,
        model: nn.Module,
        states: States,
        is_stopping: Callable[[], bool],
        *,
        is_several: bool,
        outer: OuterStep | None = None,
    ) -> nn.Module:
        """The module whose backward pass exchanges gradients."""
        kind = SeveralExchange if is_several else GradientExchange
        wire = GradientWire(
            lambda: self.membership.manager, self.process_group, self.timeout.timeout, self.place.exchange.code
        )
        exchange = kind(model, wire, self.timer.gradients_ready)
        self.timeout.exchanges(exchange.num_bytes)
        self.process_group.rule = ExchangeRule(self.place.exchange, exchange.num_bytes, outer)
        self.is_stopping = is_stopping
        self._model = SharedModel(model, exchange, states, is_several=is_several, outer=outer)
        return self._model.wrapped

    def close(self) -> None:
        """Leave the group, and close this worker's ports."""
        self.waits.close()
        self.membership.leave()
        self.last_commit.let_sums_arrive()
        self._closing.close()

    def _tell_wait(self, seconds: float, what: str) -> None:
        """Runs on the thread of `LongWaits`, while the training thread waits."""
        self.notices.wait(
            seconds,
            what,
            step=self.told_step,
            announced=self.process_group.announced,
            problem=self.membership.problem,
        )
