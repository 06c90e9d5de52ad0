"""Prints the doctor's findings and explanations: a table, then the fixes as blocks to copy."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from potluck.cli.terminal import Console
from potluck.doctor.examination import STALLED, DialledLink, Examination
from potluck.doctor.explain import Explanation, explain
from potluck.doctor.finding import BY_HAND, OK, POWERSHELL, Finding, Fix, is_trouble

_STYLES = {"fail": "bold red", "warn": "yellow", "unknown": "cyan", "ok": "green"}


def print_findings(findings: Sequence[Finding], *, console: Console | None = None, with_ok: bool = False) -> None:
    """Print a table of findings, then the fixes of those that are a failure or a warning."""
    console = console or Console()
    shown = [finding for finding in findings if with_ok or finding.status != OK]
    if shown:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in ("is", "check", "machine"):
            table.add_column(heading, no_wrap=True)
        table.add_column("what")
        for finding in shown:
            table.add_row(
                Text(finding.status, style=_STYLES[finding.status]), finding.id, finding.machine, Text(finding.what)
            )
        console.print(table)
    for finding in shown:
        if is_trouble(finding):
            _print_fixes(console, finding)
    ids = {finding.id for finding in findings}
    well = len(ids - {finding.id for finding in findings if finding.status != OK})
    count = f"All {well} checks are" if well == len(ids) > 1 else f"{well} {'check is' if well == 1 else 'checks are'}"
    if well:
        console.print(Text(f"{count} fine.", style="green"))


def matrix_tables(seen: Examination) -> list[Table]:
    """Tables of the round trip and rate from each machine to each other, and of all-reduce times by size."""
    if not seen.links:
        return []
    names = [facts.machine for facts in seen.machines]
    links = {(link.source, link.target): link for link in seen.links}
    table = Table(box=None, pad_edge=False, header_style="bold", title="from row to column", title_justify="left")
    table.add_column("")
    for name in names:
        table.add_column(name, no_wrap=True)
    for source in names:
        table.add_row(source, *(_cell(links.get((source, target))) for target in names))
    tables = [table]
    for backend, title in (("gloo", "all-reduce"), ("nccl", "all-reduce by NCCL")):
        timed = next((one for one in seen.reductions or () if one.seconds and one.backend == backend), None)
        if timed is None:
            continue
        sizes = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
        for heading in ("bytes", "ms", "Mbit/s"):
            sizes.add_column(heading, justify="right")
        for size, seconds in timed.seconds.items():
            sizes.add_row(f"{size:,}", f"{1000 * seconds:.1f}", f"{8 * size / seconds / 1e6:,.0f}")
        tables.append(sizes)
    return tables


def _cell(link: DialledLink | None) -> Text:
    if link is None:
        return Text("")
    if not link.is_open:
        return Text(link.outcome, style="yellow")
    if link.round_trip_s is None or link.bytes_per_s is None:
        return Text(STALLED, style="bold red")
    relayed = "  relayed" if link.way == "relayed" else ""
    return Text(f"{1000 * link.round_trip_s:.2f} ms  {8 * link.bytes_per_s / 1e6:,.0f} Mbit/s{relayed}")


def print_known(text: str) -> None:
    """Print the cause and fix of an error text to stderr, if they are known."""
    found = explain(text)
    if found:
        print_explanations(found, console=Console(stderr=True, soft_wrap=True))


def print_explanations(found: Sequence[Explanation], *, console: Console | None = None) -> None:
    """Print the cause and fix of each explained error."""
    console = console or Console(soft_wrap=True)
    if not found:
        console.print("no known error is in this text; potluck doctor examines this machine")
    for one in found:
        console.print(Text(f"{one.id}", style="bold") + Text(f"  line {one.line_number}: {one.line[:160]}"))
        console.print(Text("  cause: ", style="bold red") + Text(one.cause, style="default"))
        console.print(Text("    fix: ", style="bold green") + Text(one.fix, style="default"))


def _print_fixes(console: Console, finding: Finding) -> None:
    console.print()
    console.print(Text(f"{finding.id} on {finding.machine}", style="bold"))
    if finding.why:
        console.print(Text(f"why: {finding.why}", style="default"), soft_wrap=True)
    for index, fix in enumerate(finding.fixes):
        _print_fix(console, fix, word="fix" if index == 0 else "or")


def _print_fix(console: Console, fix: Fix, *, word: str) -> None:
    if fix.shell == BY_HAND:
        console.print(Text(f"{word}: {fix.note}"), soft_wrap=True)
        return
    where = "in PowerShell on Windows" if fix.shell == POWERSHELL else "in a shell"
    rights = " as administrator" if fix.needs_administrator and fix.shell == POWERSHELL else ""
    note = f", {fix.note}" if fix.note else ""
    place = f"on {fix.machine}" if fix.note.startswith("in ") else f"{where}{rights} on {fix.machine}"
    console.print(Text(f"{word}, {place}{note}:"), soft_wrap=True)
    # Nothing is wrapped or marked up, so that a line can be copied as it is.
    for command in fix.commands:
        console.print(Text(f"    {command}"), soft_wrap=True)
    if fix.undo:
        console.print(Text("undo:"), soft_wrap=True)
        for command in fix.undo:
            console.print(Text(f"    {command}"), soft_wrap=True)
