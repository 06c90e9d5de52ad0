"""Chooses Gloo or NCCL for the gradients of a group, from what its workers say about themselves, and says why."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from potluck.core.errors import GroupError
from potluck.core.words import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendFacts:
    """One worker's facts that decide which backend its group can use."""

    machine: str
    device: str = "cpu"
    """cpu, cuda:0, xpu:0."""
    nccl: str = ""
    """The version of NCCL that this worker could use; empty if it can use none."""
    card: str = ""
    """Identity of the CUDA device, the same for two workers that share it; empty if it is not known."""

    @property
    def is_on_cpu(self) -> bool:
        return self.device.partition(":")[0] == "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChoice:
    """The backend of a group, and why."""

    backend: str
    """gloo or nccl."""
    reason: str
    through_host: bool = False
    """Whether gradients of an accelerator are copied to host memory, which is all that Gloo reads."""
    held_back_by: tuple[str, ...] = ()
    """Machines without which all other workers could use NCCL; empty if NCCL is used, or would not be anyway."""


def choose_backend(wanted: str, workers: Sequence[BackendFacts], exchange: str = "exact") -> BackendChoice:
    """The backend that the user wants; for `auto`, NCCL if all workers can use it together, else Gloo.

    `exchange`: how gradients or weights travel.
    """
    obstacle = _nccl_obstacle(workers)
    if not obstacle and exchange != "exact":
        obstacle = f"--exchange {exchange} codes values on the CPU"
        if wanted == "nccl":
            raise GroupError(f"NCCL is asked for, but {obstacle}", fix="leave --backend out, or use --exchange exact")
    version = workers[0].nccl if workers else ""
    if wanted == "nccl" and obstacle:
        raise GroupError(
            f"NCCL is asked for, but {obstacle}",
            fix="leave --backend out, or choose machines with an NVIDIA GPU each and the same CUDA build of torch "
            "(--machines)",
        )
    if len(workers) == 1:
        # Not NCCL, which would choose its interface now, before the routes to the others are known.
        return BackendChoice(backend="gloo", reason="one worker has nobody to exchange gradients with")
    if wanted != "gloo" and not obstacle:
        return BackendChoice(
            backend="nccl", reason=f"every worker has a CUDA device of its own and NCCL {version.partition(' ')[0]}"
        )
    return BackendChoice(
        backend="gloo",
        reason="--backend gloo asks for it" if wanted == "gloo" else obstacle,
        through_host=not all(worker.is_on_cpu for worker in workers),
        held_back_by=() if wanted == "gloo" else _held_back_by(workers),
    )


def explain_backend(devices: Sequence[tuple[str, str]]) -> list[str]:
    """A line if machines that train on a CPU keep others from NCCL. `devices`: of each worker, machine and device.

    What NCCL would gain is not in any profile, so the line names no figure, and says how to measure it.
    """
    facts = [
        BackendFacts(machine=machine, device=device, nccl="the same" if device.startswith("cuda") else "")
        for machine, device in devices
    ]
    slow = _held_back_by(facts)
    if not slow:
        return []
    others = [machine for machine in _machines(facts) if machine not in slow]
    return [
        f"gradients go by Gloo through host memory, because {_nccl_obstacle(facts)}; without {listed(slow)}, "
        f"{listed(others)} would use NCCL if they have the same version of it. Whether that is faster than with all "
        f"machines is not measured; measure it: train a few hundred steps with --machines {','.join(others)} and as "
        "many with all, then: potluck compare"
    ]


def _held_back_by(workers: Sequence[BackendFacts]) -> tuple[str, ...]:
    """The machines that train on a CPU, if NCCL is possible among the others, and these have something to exchange."""
    without = _machines([worker for worker in workers if worker.is_on_cpu])
    others = [worker for worker in workers if worker.machine not in without]
    return tuple(without) if without and len(others) > 1 and not _nccl_obstacle(others) else ()


def _nccl_obstacle(workers: Sequence[BackendFacts]) -> str:
    """Why these workers cannot use NCCL together; empty if they can."""
    on_cpu = [worker for worker in workers if worker.is_on_cpu]
    without = [worker for worker in workers if not worker.nccl]
    if len(on_cpu) == len(workers):
        return "no worker trains on a GPU"
    if on_cpu:
        machines = _machines(on_cpu)
        return f"{listed(machines)} {'trains on its CPU' if len(machines) == 1 else 'train on their CPUs'}"
    if without:
        return f"torch on {listed(_machines(without))} has no NCCL for {without[0].device}"
    if len({worker.nccl for worker in workers}) > 1:
        versions = dict.fromkeys(f"{worker.machine} {worker.nccl}" for worker in workers)
        return f"the machines have different NCCL: {', '.join(versions)}"
    cards = Counter((worker.machine, worker.card) for worker in workers if worker.card)
    for (machine, _), number in cards.items():
        if number > 1:
            return f"workers of {machine} share one GPU, and NCCL wants a GPU for each"
    return ""


def _machines(workers: Sequence[BackendFacts]) -> list[str]:
    return list(dict.fromkeys(worker.machine for worker in workers))
