"""Gives a launched process its Place in a group."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torchft.coordination import LighthouseServer

from potluck.core.environment import Launch, read_data_limit, read_environment
from potluck.core.errors import GroupError
from potluck.core.quantities import size_bytes
from potluck.engine.compute.frozen_cache import FrozenCache
from potluck.engine.group.addresses import address_towards, answers, host_and_port, is_own, own_address
from potluck.engine.group.backend import check_backend
from potluck.engine.group.lighthouse import start_lighthouse
from potluck.engine.group.listening import Listening, make_store
from potluck.engine.group.place import ExchangeWish, Place
from potluck.engine.group.stderr_capture import NativeNoise

_MEET_S = 60.0
_ANSWER_S = 2.0


class Launched:
    """One of several workers, with what it starts and stops for the group."""

    def __init__(
        self, launch: Launch, machine: str, *, backend: str, device: torch.device, exchange: ExchangeWish
    ) -> None:
        self._launch, self.notes = _settle_on_master(launch)
        self._backend = check_backend(backend)
        self._exchange = exchange
        self._device = device
        self._machine = machine
        self._lighthouse: LighthouseServer | None = None
        self._store: TCPStore | None = None
        self._noise: NativeNoise | None = None
        if launch.lighthouse is not None and not launch.secret:
            raise GroupError(
                "POTLUCK_LIGHTHOUSE is set, but POTLUCK_SECRET is not",
                fix="set POTLUCK_SECRET to the same secret text on every machine",
            )

    def agree_on_name(self, name: str | None) -> str | None:
        """The run's name: given by the host, or under torchrun chosen by worker 0."""
        if self._launch.lighthouse is not None:
            return self._launch.run or name
        with _reaching(self._launch):
            self._store = _torchrun_store(self._launch)
            if self._launch.rank == 0:
                self._store.set("potluck/run", name or "")
            return str(self._store.get("potluck/run").decode()) or None

    def take_place(self, log_file: Path) -> Place:
        """This worker's Place; from now on what native libraries print goes into the log file."""
        self._noise = NativeNoise(log_file)
        lighthouse, secret = self._launch.lighthouse, self._launch.secret
        if lighthouse is None:
            with _reaching(self._launch):
                lighthouse, secret = self._meet_under_torchrun()
        listening = where_to_listen(self._launch, lighthouse)
        return Place(
            name=f"{self._machine}-{self._launch.worker}",
            machine=self._machine,
            lighthouse=lighthouse,
            secret=secret.encode(),
            listening=listening,
            share=self._launch.share,
            expected=self._launch.expected,
            backend=self._backend,
            exchange=self._exchange,
            device=self._device,
            host=self._launch.host,
            lan_address=self._launch.lan_address or ("" if listening.is_private else listening.gradient_address),
            # A name for each process: NCCL truncates the file, and files that are being sent must not be truncated.
            nccl_log=log_file.absolute().with_suffix(f".nccl-{os.getpid()}.log"),
            frozen_cache=_frozen_cache(),
        )

    def _meet_under_torchrun(self) -> tuple[str, str]:
        """The lighthouse's address and the secret: worker 0 makes both, and shares them through torchrun's store."""
        assert self._launch.master is not None
        assert self._store is not None
        if self._launch.rank == 0:
            address = address_towards(self._launch.master[0])
            self._lighthouse = start_lighthouse(f"{address}:0")
            port = self._lighthouse.address().rsplit(":", 1)[1]
            self._store.set("potluck/secret", secrets.token_hex(16))
            self._store.set("potluck/lighthouse", f"http://{address}:{port}")
        return self._store.get("potluck/lighthouse").decode(), self._store.get("potluck/secret").decode()

    def leave(self) -> None:
        """Stop the lighthouse and restore stderr, if this worker started or redirected them."""
        if self._lighthouse is not None:
            self._lighthouse.shutdown()
        if self._noise is not None:
            self._noise.close()


def _frozen_cache() -> FrozenCache:
    limit = read_data_limit()
    return FrozenCache(read_environment().home / "frozen", None if limit is None else size_bytes(limit))


def _settle_on_master(launch: Launch) -> tuple[Launch, tuple[str, ...]]:
    """The launch with an address for worker 0, and notes for a person about how the workers meet.

    GroupError if two machines are worker 0, as when the same line was typed on both.
    """
    if launch.master is None or launch.rank > 0 or launch.has_agent_store:
        return launch, ()
    (host, port), last = launch.master, launch.expected - 1
    if not host:
        host = own_address()
        line = f"export RANK=1 WORLD_SIZE={launch.expected} MASTER_ADDR={host} MASTER_PORT={port}"
        each = "on the other machine" if last == 1 else f"on each other machine, with RANK=1 to RANK={last}"
        note = f"MASTER_ADDR is not set: worker 0 uses this machine's address. Type {each}: {line}"
        return replace(launch, master=(host, port)), (f"{note}; then the same command as here",)
    if is_own(host):
        return launch, ()
    if answers(host, port, _ANSWER_S):
        raise GroupError(
            f"two machines have RANK=0: this one, and {host}, where worker 0 answers at port {port}",
            fix=f"here: export RANK=1{'' if last == 1 else f', or another number up to {last} that no worker has'}",
        )
    return launch, (
        f"this is worker 0 (RANK=0), but MASTER_ADDR={host} is no address of this machine: if worker 0 is to be there, "
        "end this with Ctrl-C and export RANK=1",
    )


def where_to_listen(launch: Launch, lighthouse: str) -> Listening:
    """This worker's addresses: those that the agent gave, else the one on the route to the lighthouse."""
    address = launch.address or address_towards(host_and_port(lighthouse)[0])
    return Listening(
        address=address,
        gradient_address=launch.gradient_address or address,
        gate=launch.gate,
        run=launch.gate_run,
    )


def _torchrun_store(launch: Launch) -> TCPStore:
    assert launch.master is not None
    host, port = launch.master
    timeout = timedelta(seconds=_MEET_S)
    if launch.rank == 0 and not launch.has_agent_store:
        return make_store(address_towards(host), port, timeout)
    return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timeout)


@contextmanager
def _reaching(launch: Launch) -> Iterator[None]:
    """Turn torch's error when workers cannot meet into a GroupError that names the worker and the address."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        host, port = launch.master or ("", 0)
        raise GroupError(
            f"worker {launch.rank} cannot meet the others at {host}:{port}: {str(error).splitlines()[0]}",
            fix="start worker 0 first or within a minute, and check MASTER_ADDR, MASTER_PORT and the firewall",
        ) from error
