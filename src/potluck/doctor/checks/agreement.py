"""Checks that compare the machines of a run: versions, hostnames, NCCL, and machines that have not joined."""

from collections import Counter
from collections.abc import Iterator

from potluck.core.version import FROM_THE_SAME_CLONE
from potluck.doctor.check import ClusterCheck, Verdict, fail, warn
from potluck.doctor.examination import Examination
from potluck.doctor.finding import bash, by_hand
from potluck.machine.facts import Facts


def versions(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Versions must be equal: the version of most machines is taken as right, on a tie the first machine's."""
    for title, package in (("potluck", "potluck"), ("torch", "torch"), ("torchft", "torchft"), ("Python", "")):
        have = {facts.machine: _version(facts, title) for facts in seen.machines}
        known = {machine: version for machine, version in have.items() if version}
        if len(set(known.values())) <= 1:
            continue
        wanted = Counter(known.values()).most_common(1)[0][0]
        for facts in seen.machines:
            mine = known.get(facts.machine)
            if mine is None or mine == wanted:
                continue
            what = f"{facts.machine} has {title} {mine}, the others have {wanted}"
            if package == "potluck":
                yield facts.machine, fail(what, by_hand(facts.machine, FROM_THE_SAME_CLONE))
            elif package:
                yield facts.machine, fail(what, bash(facts, f"python -m pip install '{package}=={wanted}'"))
            else:
                yield (
                    facts.machine,
                    warn(what, by_hand(facts.machine, f"make the environment anew with Python {wanted}")),
                )


def hostnames(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Hostnames must differ: files of two machines with one name collide, and NCCL takes the two for one."""
    first: dict[str, str] = {}
    for index, facts in enumerate(seen.machines, start=1):
        if facts.hostname not in first:
            first[facts.hostname] = facts.machine
            continue
        new = f"{facts.hostname}-{index}"
        yield (
            facts.machine,
            fail(
                f"two machines are called {facts.hostname}: {', '.join(_where(seen, facts.hostname))}",
                bash(facts, f"export POTLUCK_NAME={new}", note=f"on {_address(seen, facts)}, before training starts"),
                bash(facts, f"hostnamectl set-hostname {new}", note="or for good", root=True),
            ),
        )


def nccl(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """NCCL works only between machines with the same version, and not between CUDA and HIP."""
    have = {facts.machine: torch for facts in seen.machines if (torch := facts.software.torch) and torch.num_devices}
    forced = [facts.machine for facts in seen.machines if _forces_nccl(facts)]
    kinds = {("hip" if torch.hip else "cuda", torch.nccl) for torch in have.values()}
    if len(kinds) > 1 and len(have) > 1:
        listed = ", ".join(f"{machine} {torch.nccl or 'none'}" for machine, torch in have.items())
        machine = forced[0] if forced else list(have)[-1]
        yield (
            machine,
            warn(
                f"the machines have different NCCL: {listed}",
                by_hand(machine, "leave --backend out: Gloo is used; for NCCL install the same build of torch on all"),
            ),
        )


def missing(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Every expected machine must have joined."""
    here = {facts.machine for facts in seen.machines}
    for name in seen.plan.expected:
        if name not in here and name not in seen.absent:
            yield (
                name,
                fail(f"{name} has not joined", by_hand(name, "start potluck on it, with the line from the host")),
            )


def _forces_nccl(facts: Facts) -> bool:
    return any(name.startswith("NCCL_") for name in facts.variables)


def _version(facts: Facts, title: str) -> str:
    software = facts.software
    if title == "Python":
        return ".".join(software.python.split(".")[:2])
    if title == "torch":
        # Builds of one version, such as +cpu and +cu126, work together over Gloo.
        return software.torch.version.partition("+")[0] if software.torch else ""
    return software.potluck if title == "potluck" else software.torchft


def _address(seen: Examination, facts: Facts) -> str:
    return seen.addresses.get(facts.machine) or next(iter(facts.addresses), facts.machine)


def _where(seen: Examination, hostname: str) -> list[str]:
    return [_address(seen, facts) for facts in seen.machines if facts.hostname == hostname]


AGREEMENT = (
    ClusterCheck("version-mismatch", "machines with different versions", versions),
    ClusterCheck("duplicate-hostname", "two machines of one name", hostnames),
    ClusterCheck("nccl-mismatch", "machines with different NCCL", nccl),
    ClusterCheck("missing-machines", "a machine has not joined", missing),
)
