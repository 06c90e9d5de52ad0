"""A worker's standing with the lighthouse: it asks for a group and hears who is in it."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torchft import Manager

from potluck.core.errors import GroupError
from potluck.engine.addresses import host_and_port
from potluck.engine.healing import StateExchange
from potluck.engine.listening import NUM_TRIES, Listening, free_port, make_store, manager_bound_to, no_port
from potluck.engine.roster import RosteredGroup
from potluck.gates.exposing import GateLine, TakenError

_CONNECT_S = 10.0
_FIND_S = 120.0
_QUORUM_S = 60.0
_QUORUM_RETRIES = 1000
_HEARTBEAT_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """This worker's place in a group."""

    name: str
    machine: str
    lighthouse: str
    secret: bytes
    listening: Listening
    share: int | None = None
    expected: int = 1
    """Workers to wait for before the very first step."""
    backend: str = "auto"
    device: torch.device


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """How this worker's training state is read for a peer, and replaced by a peer's."""

    read: Callable[[], dict[str, Any]]
    replace: Callable[[dict[str, Any]], None]


class Membership:
    """torchft's manager of one worker, with every address made explicit. After `leave` it is of no more use."""

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
    def manager(self) -> Manager:
        assert self._manager is not None, "join comes first"
        return self._manager

    def join(self, step: int) -> None:
        """Go to the lighthouse, once, with the step that this worker's state is of."""
        if self._manager is None:
            store_port, manager_port = self._open_ports()
            self._manager = self._find_lighthouse(store_port, manager_port)
            self._manager.load_state_dict({"step": step, "batches_committed": step})

    def _open_ports(self) -> tuple[int, int]:
        """A store and a port for torchft's manager, which the others can dial before anybody hears of them."""
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
        return exchange

    def ask(self) -> None:
        """Ask who is here; meanwhile this worker's state may be read."""
        self._exchange.open(self.manager.current_step(), self._whole_state)
        self.manager.start_quorum()

    def answer(self) -> None:
        """Wait for the answer to `ask`."""
        try:
            self.manager.wait_quorum()
        except Exception as error:
            raise self._no_answer(error) from error
        if self._group.refusal is not None:
            raise self._group.refusal

    @property
    def state_address(self) -> str:
        """Where peers ask for this worker's state."""
        return self._exchange.metadata()

    def fetch(self, peer: str, step: int) -> dict[str, Any]:
        """The training state of that peer at that step."""
        state: dict[str, Any] = self._exchange.fetch(peer, step, timedelta(seconds=_QUORUM_S))["user"]["default"]
        return state

    def finish(self) -> None:
        """Training is over: give the last state to those who wait for it."""
        if self._manager is not None:
            self._exchange.finish(self.manager.current_step(), self._whole_state)

    def forget_formation(self) -> None:
        """Empty this worker's store: a restarted lighthouse counts from 1 again and must find nothing of that time."""
        store: Any = self._store
        if hasattr(store, "list_keys"):
            for key in store.list_keys():
                if "torchft/" in key:
                    store.delete_key(key)

    def leave(self) -> None:
        """The lighthouse hears no more of this worker."""
        if self._line is not None:
            self._line.close()
        if self._manager is None:
            self._exchange.shutdown()
            return
        with suppress(Exception):
            self._manager.shutdown(wait=False)

    def _find_lighthouse(self, store_port: int, manager_port: int) -> Manager:
        """It may be restarting just now: keep trying for a while."""
        since, told = time.monotonic(), False
        while True:
            try:
                with manager_bound_to(f"{self._address}:{manager_port}"):
                    return self._make_manager(store_port)
            except RuntimeError as error:
                if time.monotonic() - since > _FIND_S:
                    raise self._no_answer(error) from error
            if not told:
                told = True
                self._say(f"the lighthouse at {self._place.lighthouse} does not answer yet; waiting")

    def _make_manager(self, store_port: int) -> Manager:
        return Manager(
            pg=self._group,
            load_state_dict=self._states.replace,
            state_dict=self._states.read,
            min_replica_size=1,
            replica_id=self._place.name,
            lighthouse_addr=self._place.lighthouse,
            hostname=self._address,
            store_addr=self._address,
            store_port=store_port,
            rank=0,
            world_size=1,
            timeout=timedelta(seconds=_CONNECT_S),
            quorum_timeout=timedelta(seconds=_QUORUM_S),
            connect_timeout=timedelta(seconds=_CONNECT_S),
            heartbeat_interval=timedelta(milliseconds=_HEARTBEAT_MS),
            checkpoint_transport=self._exchange,
            init_sync=False,
            quorum_retries=_QUORUM_RETRIES,
        )

    def _whole_state(self) -> dict[str, Any]:
        """In torchft's own form."""
        return {"user": {"default": self._states.read()}, "torchft": self.manager.state_dict()}

    def _peers(self) -> list[str]:
        roster = self._group.roster
        if roster is None:
            return []
        return [roster.members[index].state_address for index in roster.participants()]

    def _no_answer(self, error: Exception) -> GroupError:
        return GroupError(
            f"the lighthouse at {self._place.lighthouse} does not answer: {error}",
            fix="start it again on the same address, or check the network, then start this worker with resume",
        )
