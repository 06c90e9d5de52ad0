"""Checks that take a blink and stand before every launch of several workers: only what stops training is told."""

from potluck.doctor.checks.catalogue import examine_machine
from potluck.doctor.examination import IntendedRun
from potluck.doctor.finding import FAIL
from potluck.machine.facts import Facts

# Not among them: what Potluck sets right by itself, and the meeting port, which a launcher may hold for this run.
QUICK_CHECKS = (
    *("no-network", "loopback", "cannot-host"),
    *("name-unresolvable", "nobody-hosts", "docker-desktop-hosts", "windows-native"),
)


def quick_failures(facts: Facts, plan: IntendedRun | None = None) -> list[str]:
    """One line for each failure on a machine, with how to see its fix. The facts need not be torch's."""
    findings = examine_machine(facts, plan, only=QUICK_CHECKS)
    return [f"{one.what} (fix: potluck doctor --check {one.id})" for one in findings if one.status == FAIL]
