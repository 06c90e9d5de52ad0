"""Which of several workers this process is: from the variables that torchrun or a person sets. Pure.

RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT mean what torch says. NODE_RANK, the number
of a machine, stands in for RANK where RANK is missing: RANK = NODE_RANK * LOCAL_WORLD_SIZE + LOCAL_RANK.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from potluck.core.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The numbers of one worker, and where it meets worker 0."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    master_addr: str | None = None
    """Empty: worker 0 is to use its machine's own address. None for a process that trains without a launch."""

    master_port: int | None = None
    notes: tuple[str, ...] = ()
    """What a person should know about the variables: sentences to print."""


def read_ranks(variables: Mapping[str, str], master: tuple[str, int] | None = None) -> Ranks:
    """This worker's Ranks; SettingsError if a variable is missing or nonsense. `master`, from flags, overrides two."""
    address, port = master or (variables.get("MASTER_ADDR") or "", _whole(variables, "MASTER_PORT"))
    world_size, local_rank = _whole(variables, "WORLD_SIZE"), _whole(variables, "LOCAL_RANK") or 0
    rank, name, notes = _find_rank(variables, is_launch=bool(world_size or address))
    if rank is None and (world_size or 1) == 1:
        return Ranks(local_rank=local_rank, notes=(*notes, *_without_ranks(address, is_flag=master is not None)))
    if rank is None:
        raise SettingsError(
            f"WORLD_SIZE={world_size} is set, but RANK is not: nobody knows which of the {world_size} workers this is",
            fix=f"{_each_its_rank(int(world_size or 0))}; to train without other workers: unset WORLD_SIZE",
        )
    if not world_size:
        raise SettingsError(
            f"{name}={rank} is set, but WORLD_SIZE is not: nobody knows how many workers train together",
            fix=f"export WORLD_SIZE=2 for two workers, on every machine; to train without other workers: unset {name}",
        )
    if rank >= world_size:
        raise SettingsError(
            f"RANK={rank}, but WORLD_SIZE={world_size}: the workers have the numbers 0 to {world_size - 1}",
            fix=f"{_each_its_rank(world_size)}; WORLD_SIZE is the number of all workers",
        )
    if world_size == 1:
        return Ranks(local_rank=local_rank)
    if not address and rank > 0:
        raise SettingsError(
            f"this is worker {rank} of {world_size}, but MASTER_ADDR is not set: the address of worker 0 is missing",
            fix="export MASTER_ADDR=ADDRESS with the address of the machine with RANK=0 (there: hostname -I); "
            "worker 0 prints the whole line if it is started without MASTER_ADDR",
        )
    return Ranks(
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        master_addr=address,
        master_port=port,
        notes=notes,
    )


def ranks_at_lighthouse(variables: Mapping[str, str]) -> Ranks:
    """The numbers of a worker that meets the others at a lighthouse: none is needed, and none can be wrong."""
    given = {name: variables.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    rank, world_size, local_rank = (int(text) if text.isdigit() else None for text in given.values())
    return Ranks(rank=rank or 0, world_size=world_size or 1, local_rank=local_rank or 0)


def _find_rank(variables: Mapping[str, str], *, is_launch: bool) -> tuple[int | None, str, tuple[str, ...]]:
    """RANK, else made from NODE_RANK; with the variable that said it, and notes. `is_launch`: other variables agree."""
    rank, machine = _whole(variables, "RANK"), _whole(variables, "NODE_RANK")
    if rank is not None or machine is None:
        return rank, "RANK", ()
    if machine == 0 and not is_launch:  # some systems set NODE_RANK=0 for every program
        return None, "NODE_RANK", ()
    per_machine, local_rank = _whole(variables, "LOCAL_WORLD_SIZE"), _whole(variables, "LOCAL_RANK")
    if per_machine is None and local_rank:
        raise SettingsError(
            f"NODE_RANK={machine} and LOCAL_RANK={local_rank} are set, but neither RANK nor LOCAL_WORLD_SIZE is",
            fix="export LOCAL_WORLD_SIZE, the number of workers on each machine, or RANK, this worker's number of all",
        )
    if (per_machine or 1) == 1:
        return machine, "NODE_RANK", (f"NODE_RANK={machine} is taken as RANK={machine}: one worker on each machine",)
    last = int(per_machine or 1) - 1
    if local_rank is None or local_rank > last:
        raise SettingsError(
            f"LOCAL_WORLD_SIZE={per_machine} workers are to train on machine {machine}, but LOCAL_RANK "
            + ("is not set" if local_rank is None else f"is {local_rank}"),
            fix=f"export LOCAL_RANK=0 for the first worker on this machine, up to LOCAL_RANK={last}",
        )
    rank = machine * (last + 1) + local_rank
    why = f"NODE_RANK={machine}, LOCAL_WORLD_SIZE={per_machine} and LOCAL_RANK={local_rank}"
    return rank, "NODE_RANK", (f"{why} are taken as RANK={rank}",)


def _without_ranks(address: str, *, is_flag: bool) -> tuple[str, ...]:
    """A note about an address of worker 0 that nobody will use; an error if the address was given by a flag."""
    if not address:
        return ()
    what = f"{'--master-addr ' if is_flag else 'MASTER_ADDR='}{address}"
    if is_flag:
        raise SettingsError(
            f"{what} is where several workers meet, but RANK and WORLD_SIZE are not set",
            fix=f"{_each_its_rank(2)}, and WORLD_SIZE=2 on both; or leave --master-addr out",
        )
    return (f"{what} has no effect: RANK and WORLD_SIZE are not set",)


def _each_its_rank(world_size: int) -> str:
    last = world_size - 1
    if last <= 1:
        return "export RANK=0 on one machine and RANK=1 on the other"
    return f"export RANK=0 on the first machine, RANK=1 on the second, up to RANK={last}"


def _whole(variables: Mapping[str, str], name: str) -> int | None:
    """The variable as a whole number; None if it is not set or empty."""
    text = (variables.get(name) or "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise SettingsError(f"{name}={text} is no whole number", fix=f"give {name} a number: export {name}=1")
    return int(text)
