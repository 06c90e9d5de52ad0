"""Makes one worker's torchft Manager, with every address explicit, and connects it to the lighthouse."""

import time
from collections.abc import Callable
from datetime import timedelta

from torchft import Manager

from potluck.core.errors import GroupError
from potluck.engine.group.forming import RosteredGroup
from potluck.engine.group.listening import manager_server_with
from potluck.engine.group.place import Place, States
from potluck.engine.group.state_transfer import StateExchange

QUORUM_S = 150.0  # more than the lighthouse waits for members that are still in a round
_CONNECT_S = 10.0
_CONNECT_LIGHTHOUSE_S = 1.0  # torchft's pauses between tries grow up to this time, and begin again small after it
_FIND_S = 120.0
_QUORUM_RETRIES = 1000
_HEARTBEAT_MS = 150  # the lighthouse takes a worker for lost after a second without


def find_lighthouse(
    place: Place,
    group: RosteredGroup,
    states: States,
    exchange: StateExchange,
    *,
    ports: tuple[int, int],
    say: Callable[[str], None],
) -> Manager:
    """A Manager that has reached the lighthouse; retries for a while, because the lighthouse may be restarting.

    `ports`: of this worker's store and of the Manager's own server.
    """
    since, told = time.monotonic(), False
    store_port, manager_port = ports
    bind, connect_timeout = f"{place.listening.address}:{manager_port}", timedelta(seconds=_CONNECT_LIGHTHOUSE_S)
    while True:
        try:
            with manager_server_with(bind=bind, connect_timeout=connect_timeout):
                return _make_manager(place, group, states, exchange, store_port)
        except RuntimeError as error:
            if time.monotonic() - since > _FIND_S:
                raise no_answer(place, error) from error
        if not told:
            told = True
            say(f"the lighthouse at {place.lighthouse} does not answer yet; waiting")


def _make_manager(
    place: Place, group: RosteredGroup, states: States, exchange: StateExchange, store_port: int
) -> Manager:
    return Manager(
        pg=group,
        load_state_dict=states.replace,
        state_dict=states.read,
        min_replica_size=1,
        replica_id=place.name,
        lighthouse_addr=place.lighthouse,
        hostname=place.listening.address,
        store_addr=place.listening.address,
        store_port=store_port,
        rank=0,
        world_size=1,
        timeout=timedelta(seconds=_CONNECT_S),
        quorum_timeout=timedelta(seconds=QUORUM_S),
        connect_timeout=timedelta(seconds=_CONNECT_S),
        heartbeat_interval=timedelta(milliseconds=_HEARTBEAT_MS),
        checkpoint_transport=exchange,
        init_sync=False,
        quorum_retries=_QUORUM_RETRIES,
    )


def no_answer(place: Place, error: Exception) -> GroupError:
    """The error for a lighthouse that does not answer."""
    return GroupError(
        f"the lighthouse at {place.lighthouse} does not answer: {error}",
        fix="start it again on the same address, or check the network, then start this worker with resume",
    )
