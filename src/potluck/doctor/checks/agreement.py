"""Checks that compare the machines of a run: versions, hostnames, NCCL, and machines that have not joined."""

from collections import Counter
from collections.abc import Iterator

from potluck.core.version_rule import PACKAGES, Fit, fix_commands, fix_in_words, judge, title
from potluck.core.words import listed
from potluck.doctor.backend_facts import backend_facts
from potluck.doctor.check import ClusterCheck, Verdict, fail, ok, warn
from potluck.doctor.examination import Examination
from potluck.doctor.finding import bash, by_hand
from potluck.machine.facts import Facts
from potluck.planning.backend_choice import choose_backend


def versions(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Versions must fit together: those of most machines are taken as right, on a tie the first machine's.

    The rule is that of admission. Versions that are equal for the rule but not in every digit count as one.
    """
    for package in PACKAGES:
        known = {facts.machine: version for facts in seen.machines if (version := _version(facts, package))}
        if len(set(known.values())) <= 1:
            continue
        wanted = Counter(known.values()).most_common(1)[0][0]
        for facts in seen.machines:
            mine = known.get(facts.machine, wanted)
            fit = judge(package, wanted, mine)
            what = f"{facts.machine} has {title(package)} {mine}, the others have {wanted}"
            if fit is Fit.CHECKED:
                yield facts.machine, ok(f"{what}: a parity check decides when it joins")
            elif fit is Fit.REFUSED:
                commands = fix_commands(package, wanted, mine, install=seen.plan.install)
                words = fix_in_words(package, wanted, mine, install=seen.plan.install)
                is_shell = bool(commands) and package != "python"
                yield (
                    facts.machine,
                    fail(what, bash(facts, *commands) if is_shell else by_hand(facts.machine, words)),
                )


def hostnames(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Machines' names must differ, or their files collide: POTLUCK_NAME, else the hostname, which may be the same."""
    known: set[str] = set()
    for index, facts in enumerate(seen.machines, start=1):
        name = _own_name(facts)
        if name not in known:
            known.add(name)
            continue
        new = f"{name}-{index}"
        yield (
            facts.machine,
            fail(
                f"two machines are called {name}: {', '.join(_where(seen, name))}",
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
    elif text := _backend(seen):
        yield "all", ok(text)


def _backend(seen: Examination) -> str:
    """How these machines would exchange gradients, and why; empty if none of them has a GPU."""
    workers = [backend_facts(facts) for facts in seen.machines]
    if len(workers) < 2 or all(worker.is_on_cpu for worker in workers):
        return ""
    choice = choose_backend("auto", workers)
    name = "NCCL" if choice.backend == "nccl" else "Gloo through host memory"
    without = f"; without {listed(choice.held_back_by)} it would be NCCL" if choice.held_back_by else ""
    return f"gradients would go by {name}, because {choice.reason}{without}"


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


def _version(facts: Facts, package: str) -> str:
    software = facts.software
    if package == "torch":
        return software.torch.version if software.torch else ""
    return {"python": software.python, "potluck": software.potluck, "torchft": software.torchft}[package]


def _address(seen: Examination, facts: Facts) -> str:
    return seen.addresses.get(facts.machine) or next(iter(facts.addresses), facts.machine)


def _own_name(facts: Facts) -> str:
    """The machine's name as it knows it: an examination calls two machines of one name NAME@ADDRESS."""
    return facts.machine.partition("@")[0]


def _where(seen: Examination, name: str) -> list[str]:
    return [_address(seen, facts) for facts in seen.machines if _own_name(facts) == name]


AGREEMENT = (
    ClusterCheck("version-mismatch", "machines with different versions", versions),
    ClusterCheck("duplicate-hostname", "two machines of one name", hostnames),
    ClusterCheck("nccl-mismatch", "machines with different NCCL", nccl),
    ClusterCheck("missing-machines", "a machine has not joined", missing),
)
