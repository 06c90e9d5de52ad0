"""All checks, and how to run them."""

from collections.abc import Collection

from potluck.core.errors import SettingsError, did_you_mean
from potluck.doctor.check import ClusterCheck, MachineCheck
from potluck.doctor.checks.agreement import AGREEMENT
from potluck.doctor.checks.between import BETWEEN
from potluck.doctor.checks.cards import CARDS
from potluck.doctor.checks.interfaces import INTERFACES
from potluck.doctor.checks.naming import NAMING
from potluck.doctor.checks.resources import RESOURCES
from potluck.doctor.checks.software import SOFTWARE
from potluck.doctor.checks.windows import WINDOWS
from potluck.doctor.checks.windows_network import WINDOWS_NETWORK
from potluck.doctor.examination import Examination, IntendedRun
from potluck.doctor.finding import UNKNOWN, Finding, worst_first
from potluck.machine.facts import Facts

MACHINE_CHECKS: dict[str, MachineCheck] = {
    check.id: check for check in (*SOFTWARE, *INTERFACES, *NAMING, *WINDOWS, *WINDOWS_NETWORK, *RESOURCES, *CARDS)
}
CLUSTER_CHECKS: dict[str, ClusterCheck] = {check.id: check for check in (*BETWEEN, *AGREEMENT)}

# All other cluster checks need answers from at least two machines.
_WORK_WITH_ONE_MACHINE = ("peer-silent", "missing-machines")
NEEDS_TORCH = frozenset({"torch-broken", "cuda-missing", "no-nccl", "arch-mismatch", "nccl-mismatch", "all-reduce"})


def needs_torch(only: Collection[str]) -> bool:
    """Whether these checks, or all checks if none is named, need to import torch, which takes seconds."""
    return not only or bool(NEEDS_TORCH & set(only))


def check_known(check_id: str) -> None:
    """Raise SettingsError for an id that no check has."""
    known = [*MACHINE_CHECKS, *CLUSTER_CHECKS]
    if check_id not in known:
        raise SettingsError(f"no check is called {check_id!r}", fix=did_you_mean(check_id, known))


def check_possible(only: Collection[str]) -> None:
    """Raise SettingsError if one of these checks needs several machines: only one is being examined."""
    for check_id in only:
        if check_id in CLUSTER_CHECKS:
            raise SettingsError(
                f"{check_id} is about several machines",
                fix=f"after potluck join: potluck doctor --cluster --check {check_id}; before: potluck doctor --listen "
                f"on the other machine, then here: potluck doctor --check {check_id} --reach ...",
            )


def examine_machine(facts: Facts, plan: IntendedRun | None = None, *, only: Collection[str] = ()) -> list[Finding]:
    """The findings of all machine checks, or of those in `only`, on one machine, worst first."""
    chosen = [check for check in MACHINE_CHECKS.values() if not only or check.id in only]
    return worst_first(finding for check in chosen for finding in check.findings(facts, plan or IntendedRun()))


def examine_all(seen: Examination, *, only: Collection[str] = ()) -> list[Finding]:
    """The findings of all checks, or of those in `only`, on every machine and between machines, worst first."""
    single = [finding for facts in seen.machines for finding in examine_machine(facts, seen.plan, only=only)]
    wanted = {*only, "peer-silent"} if only and seen.absent else only
    chosen = [check for check in CLUSTER_CHECKS.values() if not wanted or check.id in wanted]
    together: list[Finding] = []
    for check in chosen:
        if len(seen.machines) > 1 or check.id in _WORK_WITH_ONE_MACHINE:
            together += check.findings(seen)
        elif only:
            what = f"not looked at, since {' and '.join(seen.absent) or 'nobody else'} gives no answer"
            together.append(Finding(id=check.id, machine="all", status=UNKNOWN, what=what))
    return worst_first([*together, *single])
