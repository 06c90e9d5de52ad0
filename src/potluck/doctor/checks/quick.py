"""Fast checks before every launch of several workers; they report only failures, which would stop training."""

from potluck.doctor.checks.catalogue import examine_machine
from potluck.doctor.examination import IntendedRun
from potluck.doctor.finding import FAIL
from potluck.machine.facts import Facts

# Left out: problems that Potluck solves by itself, and the meeting port, which a launcher may hold for this run.
QUICK_CHECKS = (
    *("no-network", "loopback", "cannot-host"),
    *("name-unresolvable", "nobody-hosts", "docker-desktop-hosts", "windows-native", "wsl1"),
)


def quick_failures(facts: Facts, plan: IntendedRun | None = None) -> list[str]:
    """One line for each failure on a machine, with the command that prints its fix. The facts may lack torch's."""
    findings = examine_machine(facts, plan, only=QUICK_CHECKS)
    return [f"{one.what} (fix: potluck doctor --check {one.id})" for one in findings if one.status == FAIL]
