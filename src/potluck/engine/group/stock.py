"""Stock torch.distributed of a script that does not use Potluck: its store and its Gloo groups go through the gates.

A script calls `init_process_group`, which by itself would open a store on all addresses of rank 0's machine, and Gloo's
ports on the address that the hostname resolves to. Here both listen on the machine's own loopback address, where only
this machine's gate passes connections on from other machines of the run.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import Any

from torch import distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed import distributed_c10d as c10d

from potluck.core.environment import Launch, read_meeting_point
from potluck.core.errors import GroupError
from potluck.engine.compute.device import use_threads
from potluck.engine.group.launch import where_to_listen
from potluck.engine.group.listening import Listening, make_store, open_gloo
from potluck.gates.exposing import GateLine, TakenError

_ENDED = "potluck/ended"
_END_S = 10.0  # how long rank 0's store outlives its script, for workers that end a little later
_CLIENT = timedelta(seconds=5)
_POLL_S = 0.05
_Stock: Any = distributed.ProcessGroupGloo


@contextmanager
def stock_groups(launch: Launch) -> Iterator[None]:
    """Inside, `init_process_group` finds the run's store, and every Gloo group listens where the gate exposes it."""
    listening = where_to_listen(launch, "")
    use_threads(launch.num_threads)
    with _gloo_on(listening), _store(launch, listening):
        try:
            yield
        except SystemExit as ended:
            if ended.code:
                raise


@contextmanager
def _gloo_on(listening: Listening) -> Iterator[None]:
    """Replace the Gloo groups of torch.distributed by groups on this worker's address, on one device and one port.

    This is the only place that replaces a name inside torch. A process that the script starts does not have it; its
    Gloo groups listen on 127.0.0.1, by GLOO_SOCKET_IFNAME.
    """
    stock = c10d.ProcessGroupGloo
    c10d.ProcessGroupGloo = _gated(cache(lambda: open_gloo(listening)))  # type: ignore[misc]
    try:
        yield
    finally:
        c10d.ProcessGroupGloo = stock  # type: ignore[misc]


def _gated(open_device: Callable[[], tuple[Any, GateLine | None, str]]) -> Any:
    class GatedGloo(_Stock):  # type: ignore[misc]
        """Gloo on the device of this worker, which the gate exposes; made with the first group."""

        def __init__(self, store: Any, rank: int, size: int, timeout: timedelta = c10d.default_pg_timeout) -> None:
            options = _Stock._Options()
            options._devices = [open_device()[0]]
            options._timeout = timeout
            super().__init__(store, rank, size, options)
            # torch hangs where DDP's reducer is the last to hold a group: the reducer's destructor keeps the GIL while
            # it joins Gloo's threads, and one of these may want the GIL. So groups live as long as the process.
            made.append(self)

    made: list[GatedGloo] = []
    return GatedGloo


@contextmanager
def _store(launch: Launch, listening: Listening) -> Iterator[None]:
    """Rank 0 serves the store until all workers have ended; the others report their end there."""
    address, port = read_meeting_point()
    if launch.rank != 0:
        yield
        with suppress(RuntimeError):  # rank 0 has ended first
            TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=_CLIENT).add(_ENDED, 1)
        return
    line = listening.open_line()
    try:
        store = make_store(address, port)
        if line is not None:
            line.expose({port: "control"})
    except (OSError, TakenError) as error:
        raise GroupError(
            f"the store of rank 0 cannot be opened at {address}:{port}: {error}",
            fix="start the run again: it takes another port",
        ) from None
    yield
    deadline = time.monotonic() + _END_S
    while store.add(_ENDED, 0) < launch.expected - 1 and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    if line is not None:
        line.close()
