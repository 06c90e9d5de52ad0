"""Prints profiles and plans as tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from potluck.cli.fitting import print_table
from potluck.cli.terminal import Console
from potluck.core.words import counted
from potluck.measuring.profile_store import StoredProfile
from potluck.planning.exchange_words import price_text
from potluck.planning.explain import rate_text, seconds_text
from potluck.planning.outlook import Outlook
from potluck.report.words import percent

_MOST_WORKERS = 24

if TYPE_CHECKING:
    from potluck.meeting.questions import LinksSwept


def show_profile(console: Console, profile: StoredProfile, global_batch: int, path: Path) -> None:
    """Print measured and fitted step times by number of samples, and the fit in words."""
    cost = profile.compute
    table = plain_table("samples", "measured", "fitted", "samples/s")
    for size, seconds in profile.trial.items():
        table.add_row(str(size), seconds_text(seconds), seconds_text(cost.seconds(size)), f"{size / seconds:,.1f}")
    console.print(Text(f"{profile.machine}, {profile.device}: {profile.model}, precision {profile.precision}"))
    print_table(console, table)
    shape = f"{seconds_text(cost.fixed_s)} and {seconds_text(cost.per_sample_s)} for each sample"
    if cost.curve:
        shape = "a time that is no straight line over the samples: the fit goes from size to size"
    _lines(
        console,
        f"a step takes {shape}, give or take {percent(cost.error)}",
        "memory: "
        + (
            "every batch size tried fits"
            if cost.memory_cap is None
            else f"at most {counted(cost.memory_cap, 'sample')} at once"
        ),
        f"alone: {cost.solo_speed(global_batch):,.1f} samples/s; every step exchanges {profile.gradient_bytes:,} bytes",
        *([f"tuning: {profile.tuning}"] if profile.tuning else []),
        f"kept in {path}",
    )


def show_profiles(
    console: Console, profiles: Sequence[StoredProfile], links: "LinksSwept | None", global_batch: int
) -> None:
    """Print a row for each device, and the links between machines."""
    table = plain_table("machine", "device", "each step", "each sample", "samples/s alone", "fits in memory", "link")
    for profile in profiles:
        cost, link = profile.compute, profile.link
        table.add_row(
            profile.machine,
            profile.device,
            "" if cost.curve else seconds_text(cost.fixed_s),
            seconds_text(cost.per_sample_s),
            f"{cost.solo_speed(global_batch):,.1f}",
            "every batch tried" if cost.memory_cap is None else counted(cost.memory_cap, "sample"),
            "not measured" if link is None else rate_text(link.bandwidth_bytes_per_s),
        )
    print_table(console, table)
    _lines(console, *(f"{one.machine}, {one.device}: tuning: {one.tuning}" for one in profiles if one.tuning))
    if links is not None:
        console.print()
        between = plain_table("between", "rate", "latency")
        for name, seen in {**links.pairs, "all of them": links.ring}.items():
            between.add_row(name, rate_text(seen.bytes_per_s), seconds_text(seen.latency_s))
        print_table(console, between)


def show_outlook(console: Console, outlook: Outlook, cable: str) -> None:
    """Print the planned shares, the speed with each machine added, and the explanations."""
    plan, step = outlook.plan, outlook.plan.prediction
    shares = plain_table("worker", "samples", "work", "waits", "link")
    for index, worker in enumerate(outlook.cluster.workers[:_MOST_WORKERS]):
        link = outlook.cluster.links.get(worker.machine)
        is_benched = worker.machine in plan.benched
        shares.add_row(
            worker.name,
            "benched" if is_benched else str(plan.shares[index]),
            "" if is_benched else seconds_text(step.work_s[index]),
            "" if is_benched else seconds_text(step.straggler_wait_s(index)),
            rate_text(link.bandwidth_bytes_per_s) if link and link.is_measured else "not measured",
        )
    print_table(console, shares)
    console.print()
    added = plain_table("machines", "alone", "together", "of the sum")
    for count, row in enumerate(outlook.added):
        speed = row.plan.prediction.samples_per_s
        name = row.machine if count == 0 else f"+ {row.machine}"
        if row.machine in row.plan.benched:
            name += " (benched)"
        part = percent(speed / row.sum_samples_per_s)
        added.add_row(name, f"{row.solo_samples_per_s:,.1f}", f"{speed:,.1f} samples/s", part)
    print_table(console, added)
    console.print()
    _lines(console, *outlook.lines, *outlook.finish_lines)
    if outlook.with_cable is not None:
        faster = outlook.with_cable.prediction.samples_per_s
        gain = faster / step.samples_per_s - 1
        _lines(console, f"with links of {cable} at least: {faster:,.1f} samples/s, {percent(gain)} more")
    _show_exchanges(console, outlook)


def _show_exchanges(console: Console, outlook: Outlook) -> None:
    """Print a row for each mode of exchange, and what `--exchange auto` would take."""
    if len(outlook.exchanges) < 2:
        return
    console.print()
    table = plain_table("--exchange", "samples/s", "of the sum", "limited by", "a step sends", "price in loss")
    for mode in outlook.exchanges:
        table.add_row(
            mode.mode,
            f"{mode.samples_per_s:,.1f}",
            percent(mode.samples_per_s / outlook.solo_sum),
            mode.limit,
            f"{mode.wire_bytes / 1e6:,.2f} MB",
            price_text(mode) if not mode.refusals else "refused",
        )
    print_table(console, table)
    console.print()
    _lines(console, *outlook.exchange_lines)


def plain_table(*headings: str) -> Table:
    """A table without borders; the first column is aligned to the left, the others to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _lines(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)
