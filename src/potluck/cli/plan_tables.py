"""Profiles, plans and accounts, for people."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from potluck.measuring.profile_store import StoredProfile
from potluck.planning.explain import rate_text, seconds_text
from potluck.planning.outlook import Outlook
from potluck.report.account import CAUSES, Account, Loss
from potluck.report.words import percent

if TYPE_CHECKING:
    from potluck.meeting.measuring_asks import LinksSwept


def show_profile(console: Console, profile: StoredProfile, global_batch: int, path: Path) -> None:
    """What was measured beside what the fit says, and the fit."""
    cost = profile.compute
    table = plain_table("samples", "measured", "fitted", "samples/s")
    for size, seconds in profile.trial.items():
        table.add_row(str(size), seconds_text(seconds), seconds_text(cost.seconds(size)), f"{size / seconds:,.1f}")
    console.print(Text(f"{profile.machine}, {profile.device}: {profile.model}, precision {profile.precision}"))
    console.print(table)
    shape = f"{seconds_text(cost.fixed_s)} + {seconds_text(cost.per_sample_s)} a sample"
    if cost.curve:
        shape = "no straight line: the fit goes from size to size"
    _lines(
        console,
        f"a step takes {shape}, give or take {percent(cost.error)}",
        "memory: " + ("no limit met" if cost.memory_cap is None else f"at most {cost.memory_cap} samples at once"),
        f"alone: {cost.solo_speed(global_batch):,.1f} samples/s; every step exchanges {profile.gradient_bytes:,} bytes",
        f"kept in {path}",
    )


def show_profiles(
    console: Console, profiles: Sequence[StoredProfile], links: "LinksSwept | None", global_batch: int
) -> None:
    """A row a device, and the links between machines."""
    table = plain_table("machine", "device", "fixed", "a sample", "samples/s alone", "at once", "link")
    for profile in profiles:
        cost, link = profile.compute, profile.link
        table.add_row(
            profile.machine,
            profile.device,
            "" if cost.curve else seconds_text(cost.fixed_s),
            seconds_text(cost.per_sample_s),
            f"{cost.solo_speed(global_batch):,.1f}",
            "any number" if cost.memory_cap is None else str(cost.memory_cap),
            "not measured" if link is None else rate_text(link.bandwidth_bytes_per_s),
        )
    console.print(table)
    if links is not None:
        console.print()
        between = plain_table("between", "rate", "a hop")
        for name, seen in {**links.pairs, "all of them": links.ring}.items():
            between.add_row(name, rate_text(seen.bytes_per_s), seconds_text(seen.latency_s))
        console.print(between)


def show_outlook(console: Console, outlook: Outlook, cable: str) -> None:
    """Shares, machines one by one, and the words."""
    plan, step = outlook.plan, outlook.plan.prediction
    shares = plain_table("worker", "samples", "work", "waits", "link")
    for index, worker in enumerate(outlook.cluster.workers):
        link = outlook.cluster.links.get(worker.machine)
        is_benched = worker.machine in plan.benched
        shares.add_row(
            worker.name,
            "benched" if is_benched else str(plan.shares[index]),
            "" if is_benched else seconds_text(step.work_s[index]),
            "" if is_benched else seconds_text(step.straggler_wait_s(index)),
            rate_text(link.bandwidth_bytes_per_s) if link and link.is_measured else "not measured",
        )
    console.print(shares)
    console.print()
    added = plain_table("machines", "alone", "together", "of the sum")
    total = 0.0
    for count, row in enumerate(outlook.added):
        total += row.solo_samples_per_s
        speed = row.plan.prediction.samples_per_s
        name = row.machine if count == 0 else f"+ {row.machine}"
        if row.machine in row.plan.benched:
            name += " (benched)"
        added.add_row(name, f"{row.solo_samples_per_s:,.1f}", f"{speed:,.1f} samples/s", percent(speed / total))
    console.print(added)
    console.print()
    _lines(console, *outlook.lines)
    if outlook.with_cable is not None:
        faster = outlook.with_cable.prediction.samples_per_s
        gain = faster / step.samples_per_s - 1
        _lines(console, f"with links of {cable} at least: {faster:,.1f} samples/s, {percent(gain)} more")


def show_account(console: Console, account: Account, most: int | None = None) -> None:
    """Achieved, predicted, and where the rest went, in at most so many rows."""
    lines = [f"{account.samples_per_s:,.1f} samples/s over {account.num_steps} steps"]
    if account.efficiency is not None:
        total = sum(account.solo_samples_per_s.values())
        lines.append(f"{percent(account.efficiency)} of the {total:,.1f} samples/s that the machines do alone")
    if account.predicted_samples_per_s is not None and account.prediction_error is not None:
        off = (
            f"{percent(abs(account.prediction_error))} {'above' if account.prediction_error > 0 else 'below'} measured"
        )
        lines.append(f"predicted {account.predicted_samples_per_s:,.1f} samples/s, {off}")
    _lines(console, *lines)
    is_known = account.efficiency is not None
    losses = [loss for loss in account.losses if loss.part >= 0.001 or not is_known]
    table = plain_table("lost to", "on", "it lost", "others lost", "of all")
    for loss in losses[:most]:
        table.add_row(
            CAUSES[loss.cause],
            f"{loss.machine}'s link" if _is_of_a_link(account, loss) else loss.machine,
            seconds_text(loss.seconds) if loss.seconds else "",
            seconds_text(loss.waited_s) if loss.waited_s else "",
            percent(loss.part) if is_known else "",
        )
    if smaller := losses[len(losses) if most is None else most :]:
        rest = percent(sum(loss.part for loss in smaller)) if is_known else ""
        table.add_row(f"{len(smaller)} smaller ones", "", "", "", rest)
    if table.row_count:
        console.print(table)
    _lines(console, *account.benched.values())


def time_line(account: Account) -> str:
    """Where the time of a worker alone went, the largest part first: 93 % computing, 5 % waiting for data."""
    (parts,) = list(account.step_parts_s.values())[:1] or [{}]
    words = {**CAUSES, "compute": "computing"}
    total = sum(parts.values()) or 1.0
    largest = sorted(((seconds / total, words.get(part, part)) for part, seconds in parts.items()), reverse=True)
    return ", ".join(f"{percent(part)} {name}" for part, name in largest if part >= 0.001)


def _is_of_a_link(account: Account, loss: Loss) -> bool:
    return loss.cause == "exposed_exchange" and loss.machine == account.slowest_link


def plain_table(*headings: str) -> Table:
    """Columns without lines, the first to the left."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _lines(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)
