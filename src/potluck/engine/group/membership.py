"""A worker's membership at the lighthouse: it asks for quorums, and lets peers read its state."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torchft import Manager

from potluck.engine.group.addresses import host_and_port
from potluck.engine.group.forming import RosteredGroup, SelfDescription
from potluck.engine.group.frozen_transfer import OwnParameters
from potluck.engine.group.listening import NUM_TRIES, free_port, make_store, no_port
from potluck.engine.group.manager import QUORUM_S, find_lighthouse, no_answer
from potluck.engine.group.place import Place, States
from potluck.engine.group.quorums import QuorumClient
from potluck.engine.group.state_transfer import StateExchange
from potluck.gates.exposing import GateLine, TakenError

_MOST_TEXT = 300


class Membership:
    """One worker's torchft Manager, with its store, its ports and its state server. Cannot be used after `leave`."""

    def __init__(self, place: Place, group: RosteredGroup, states: States, say: Callable[[str], None]) -> None:
        self._place = place
        self._group = group
        self._states = states
        self._say = say
        self._address = place.listening.address
        self._exchange = self._make_exchange()
        self._manager: Manager | None = None
        self._store: TCPStore | None = None
        self._line: GateLine | None = None

    @property
    def problem(self) -> str:
        """The error of the group that is forming or training, in one line; empty if none is known."""
        error = None if self._manager is None else self._manager.errored()
        return "" if error is None else " ".join(str(error.original_exception).split())[:_MOST_TEXT]

    @property
    def manager(self) -> Manager:
        assert self._manager is not None, "join comes first"
        return self._manager

    def join(self, step: int) -> None:
        """Connect to the lighthouse, once, with the step of this worker's state."""
        if self._manager is None:
            ports = self._open_ports()
            self._manager = find_lighthouse(
                self._place, self._group, self._states, self._exchange, ports=ports, say=self._say
            )
            self._manager._client = QuorumClient(self._manager, self._group)
            self._manager.load_state_dict({"step": step, "batches_committed": step})

    def _open_ports(self) -> tuple[int, int]:
        """Ports of this worker's store and torchft's Manager; a gate exposes them before any peer learns of them."""
        for _ in range(NUM_TRIES):
            self._store = make_store(self._address)
            manager_port = free_port(self._address)
            self._line = self._place.listening.open_line()
            if self._line is None:
                return self._store.port, manager_port
            state_port = host_and_port(self._exchange.metadata())[1]
            try:
                self._line.expose({self._store.port: "control", manager_port: "control", state_port: "bulk"})
            except TakenError:
                self._line.close()
                self._exchange.shutdown()
                self._exchange = self._make_exchange()
                continue
            return self._store.port, manager_port
        raise no_port()

    def _make_exchange(self) -> StateExchange:
        exchange = StateExchange(self._address, self._place.secret)
        exchange.peers = self._peers
        exchange.own = OwnParameters(
            frozen=self._states.frozen,
            values=self._states.values,
            cache=self._place.frozen_cache,
            say=lambda text: self._say(f"{self._place.machine}: {text}"),
        )
        return exchange

    def ask(self, introduction: SelfDescription) -> None:
        """Ask for a quorum, on torchft's thread; meanwhile peers may read this worker's state."""
        self._group.introduction = introduction
        self.lend()
        self.manager.start_quorum()

    def lend(self, *, is_elsewhere: bool = False) -> None:
        """Let peers read this worker's state: a step begins, and nothing changes the state yet.

        `is_elsewhere`: a round begins, and the state is in copies of the parameters now.
        """
        self._exchange.open(self.manager.current_step(), self._whole_state, is_elsewhere=is_elsewhere)

    def advance(self, num_steps: int = 1) -> None:
        """Count steps that were committed without a quorum of their own."""
        self._exchange.disallow_checkpoint()
        done = self.manager.state_dict()
        self.manager.load_state_dict({name: number + num_steps for name, number in done.items()})

    def answer(self) -> None:
        """Wait for the quorum that `ask` asked for."""
        try:
            self.manager.wait_quorum()
        except Exception as error:
            raise no_answer(self._place, error) from error
        if self._group.refusal is not None:
            raise self._group.refusal

    @property
    def state_address(self) -> str:
        """The address where peers fetch this worker's state."""
        return self._exchange.metadata()

    def stop_following(self) -> None:
        """End a `fetch` of the final state that another thread waits in."""
        self._exchange.stop_following()

    def fetch(self, peer: str, step: int, *, or_others: bool = False) -> dict[str, Any]:
        """The training state of that peer at that step; `or_others`: or that of another member that has it."""
        timeout = timedelta(seconds=QUORUM_S)
        if or_others:
            state = self._exchange.recv_checkpoint(0, peer, step, timeout)
        else:
            state = self._exchange.fetch(peer, step, timeout)
        training_state: dict[str, Any] = state["user"]["default"]
        return training_state

    def begin_change(self) -> None:
        """Stop serving the state until the next step: it changes before the commit vote."""
        self._exchange.disallow_checkpoint()

    def finish(self) -> None:
        """Training is over: send the final state to the peers that wait for it."""
        if self._manager is not None:
            self._exchange.finish(self.manager.current_step(), self._whole_state)

    def hand_over(self) -> None:
        """This worker stops: send its state to the peers that continue."""
        if self._manager is not None:
            self._exchange.hand_over(self.manager.current_step(), self._whole_state)

    def forget_quorum(self) -> None:
        """Delete torchft's keys from this worker's store: a restarted lighthouse uses the same quorum numbers again."""
        store: Any = self._store
        if hasattr(store, "list_keys"):
            for key in store.list_keys():
                if "torchft/" in key:
                    store.delete_key(key)

    def leave(self) -> None:
        """Stop the heartbeats to the lighthouse, and stop serving the state."""
        if self._line is not None:
            self._line.close()
        if self._manager is None:
            self._exchange.shutdown()
            return
        with suppress(Exception):
            self._manager.shutdown(wait=False)

    def _whole_state(self) -> dict[str, Any]:
        """The training state in torchft's own format."""
        return {"user": {"default": self._states.read()}, "torchft": self.manager.state_dict()}

    def _peers(self) -> list[str]:
        """The addresses from which torchft's thread may fetch the state, after it has formed the group."""
        session = self._group.session
        if session is None:
            return []
        return [member.state_address for member in session.roster.holders]
