"""Examine several machines at once: which machine is asked what, and in which order.

This works with any Station: its questions travel over a connection of `--reach`, or through a host to joined machines.
"""

import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from potluck.doctor.backend_facts import backend_facts
from potluck.doctor.examination import DialledLink, Examination, IntendedRun, MissingAnswer, Peer, Reduction
from potluck.doctor.probing.asks import (
    Ask,
    ClosePort,
    Dial,
    Dialled,
    Done,
    FactsTaken,
    Introduce,
    Introduced,
    OpenPort,
    PortOpen,
    Reduce,
    Reduced,
    Station,
    StationLostError,
    TakeFacts,
)
from potluck.machine.facts import Facts
from potluck.planning.backend_choice import choose_backend

Wanted = TypeVar("Wanted")
_REDUCE_S = {"gloo": 8.0, "nccl": 20.0}  # NCCL looks at all cards and links of a machine first


@dataclass(frozen=True, slots=True)
class Seat:
    """A machine that is examined, and the address and port at which the others dial it; port 0 is any."""

    station: Station
    address: str
    port: int = 0
    name: str = ""  # unique; empty if it is not known before the machine answers Introduce
    hostname: str = ""
    lan_address: str = ""  # the address past the gate, if `address` is the gate's; else empty


def examine_stations(
    seats: Sequence[Seat],
    *,
    plan: IntendedRun | None = None,
    absent: Mapping[str, MissingAnswer] | None = None,
    with_torch: bool = True,
    with_names: bool = True,
    with_all_reduce: bool = True,
) -> Examination:
    """Take the facts of all machines, dial every ordered pair, then run one all-reduce.

    `with_names`: each machine also resolves the others' hostnames, which machines that have joined do not need.
    """
    lost = dict(absent or {})
    with ThreadPoolExecutor(max_workers=max(1, len(seats))) as pool:
        crowd = _Crowd(pool, lost)
        present = _introduce(crowd, seats)
        facts = _take_facts(crowd, present, with_torch=with_torch, with_names=with_names)
        word = secrets.token_hex(16)
        opened = crowd.ask(
            [(seat, OpenPort(address=seat.address, port=seat.port, word=word)) for seat in present], PortOpen
        )
        ready = [seat for seat in present if seat.name in opened and seat.name in facts]
        links: list[DialledLink] = []
        for pairs in rounds(range(len(ready))):
            dials: list[tuple[Seat, Ask]] = [
                (ready[source], _dial(ready[source], ready[target], opened[ready[target].name].port, word))
                for source, target in pairs
                if opened[ready[target].name].port
            ]
            links += [one.link for one in crowd.ask(dials, Dialled).values()]
        crowd.ask([(seat, ClosePort()) for seat in ready], Done)
        reductions: tuple[Reduction, ...] | None = None
        # If a link is blocked, the all-reduce would only wait for its timeout.
        if with_torch and with_all_reduce and len(ready) > 1 and all(link.is_open for link in links):
            reductions = _reduce_all(crowd, ready, opened, facts)
    known = plan or IntendedRun()
    return Examination(
        machines=tuple(facts[seat.name] for seat in present if seat.name in facts),
        addresses={seat.name: seat.address for seat in present},
        ports={seat.name: seat.port for seat in present},
        links=tuple(links),
        reductions=reductions,
        absent=lost,
        plan=msgspec.structs.replace(known, peers=known.peers or _peers(present)),
    )


def rounds(indices: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Every ordered pair once, in rounds with each machine in at most one pair, so that no pair disturbs another."""
    table: list[int | None] = [*indices, *([None] if len(indices) % 2 else [])]
    half = len(table) // 2
    found = []
    for _ in range(max(0, len(table) - 1)):
        met = zip(table[:half], reversed(table[half:]), strict=True)
        pairs = [(one, other) for one, other in met if one is not None and other is not None]
        found += [pairs, [(other, one) for one, other in pairs]]
        table = [table[0], table[-1], *table[1:-1]]
    return [one for one in found if one]


class _Crowd:
    """Asks several machines at the same time; machines that do not answer are added to `lost`."""

    def __init__(self, pool: ThreadPoolExecutor, lost: dict[str, MissingAnswer]) -> None:
        self._pool = pool
        self._lost = lost

    def ask(self, questions: Sequence[tuple[Seat, Ask]], kind: type[Wanted]) -> dict[str, Wanted]:
        waiting = [(seat, self._pool.submit(seat.station.ask, question)) for seat, question in questions]
        answers: dict[str, Wanted] = {}
        for seat, future in waiting:
            name = seat.name or seat.address
            try:
                answer: Any = future.result()
            except StationLostError as error:
                self._lost[name] = error.absence
                continue
            if isinstance(answer, kind):
                answers[name] = answer
        return answers


def _introduce(crowd: _Crowd, seats: Sequence[Seat]) -> list[Seat]:
    """The machines that answer, with their names; machines that share a name get their address added to it."""
    told = crowd.ask([(seat, Introduce()) for seat in seats], Introduced)
    names = [one.machine for one in told.values()]
    return [
        Seat(
            seat.station,
            seat.address,
            seat.port,
            lan_address=seat.lan_address,
            name=one.machine if names.count(one.machine) == 1 else f"{one.machine}@{seat.address}",
            hostname=one.hostname,
        )
        for seat in seats
        if (one := told.get(seat.name or seat.address)) is not None
    ]


def _take_facts(crowd: _Crowd, present: Sequence[Seat], *, with_torch: bool, with_names: bool) -> dict[str, Facts]:
    asks: list[tuple[Seat, Ask]] = []
    for seat in present:
        others = tuple(other.hostname for other in present if with_names and other is not seat)
        asks.append((seat, TakeFacts(names=others, with_torch=with_torch)))
    told = crowd.ask(asks, FactsTaken)
    return {name: msgspec.structs.replace(one.facts, machine=name) for name, one in told.items()}


def _peers(seats: Sequence[Seat]) -> tuple[Peer, ...]:
    return tuple(Peer(name=seat.hostname, address=seat.address) for seat in seats)


def _dial(source: Seat, target: Seat, port: int, word: str) -> Dial:
    return Dial(source=source.name, target=target.name, address=target.address, port=port, word=word)


def _reduce_all(
    crowd: _Crowd, ready: Sequence[Seat], opened: Mapping[str, PortOpen], facts: Mapping[str, Facts]
) -> tuple[Reduction, ...]:
    """Every machine's result of an all-reduce by Gloo, and of a second one by NCCL if all machines have it."""
    results: list[Reduction] = []
    by_nccl = choose_backend("auto", [backend_facts(facts[seat.name]) for seat in ready]).backend == "nccl"
    for backend in ("gloo", "nccl") if by_nccl else ("gloo",):
        told = crowd.ask(_reduce(ready, opened, backend, facts), Reduced)
        silent = Reduction(machine="", error="it gave no answer", backend=backend)
        results += [
            told[seat.name].reduction if seat.name in told else msgspec.structs.replace(silent, machine=seat.name)
            for seat in ready
        ]
    return tuple(results)


def _reduce(
    ready: Sequence[Seat], opened: Mapping[str, PortOpen], backend: str, facts: Mapping[str, Facts]
) -> list[tuple[Seat, Ask]]:
    first = ready[0]
    return [
        (
            seat,
            Reduce(
                machine=seat.name,
                meeting=first.address,
                port=opened[first.name].free_port,
                rank=rank,
                num_machines=len(ready),
                address=seat.address,
                timeout_s=_REDUCE_S[backend],
                backend=backend,
                device=backend_facts(facts[seat.name]).device,
                lan_peers=tuple(other.lan_address or other.address for other in ready if other is not seat),
            ),
        )
        for rank, seat in enumerate(ready)
    ]
