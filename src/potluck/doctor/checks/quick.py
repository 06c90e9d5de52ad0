"""Fast checks before every launch of several workers: failures that would stop training, and cards that are taken."""

from potluck.doctor.checks.catalogue import examine_machine
from potluck.doctor.examination import IntendedRun
from potluck.doctor.finding import FAIL, WARN
from potluck.machine.facts import Facts

# Left out: problems that Potluck solves by itself, and the meeting port, which a launcher may hold for this run.
QUICK_CHECKS = (
    *("no-network", "loopback", "cannot-host"),
    *("name-unresolvable", "nobody-hosts", "docker-desktop-hosts", "windows-native", "wsl1"),
)


_QUICK_WARNINGS = ("card-shared",)


def quick_failures(facts: Facts, plan: IntendedRun | None = None) -> list[str]:
    """One line for each failure on a machine, with the command that prints its fix. The facts may lack torch's."""
    findings = examine_machine(facts, plan, only=(*QUICK_CHECKS, *_QUICK_WARNINGS))
    told = [one for one in findings if one.status == FAIL or (one.status == WARN and one.id in _QUICK_WARNINGS)]
    return [f"{one.what} (fix: potluck doctor --check {one.id})" for one in told]
