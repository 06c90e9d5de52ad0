"""Prints the account of a run: each machine's share of the samples, and where the time went."""

from rich.text import Text

from potluck.cli.fitting import print_table
from potluck.cli.named_rows import print_rows
from potluck.cli.plan_tables import plain_table
from potluck.cli.terminal import Console
from potluck.core.words import counted
from potluck.planning.explain import seconds_text
from potluck.report.account import CAUSES, Account, Loss
from potluck.report.account_words import basis, closing_lines, explanations, figures
from potluck.report.words import percent

_LEAST_S = 1e-6  # smaller values are rounding errors


def show_shares(console: Console, account: Account) -> None:
    """Print a row for each machine: its share of the samples, its speed in this run, and its solo speed."""
    total = sum(account.samples.values())
    table = plain_table("machine", "samples", "share", "samples/s here", "samples/s alone")
    for machine, samples in sorted(account.samples.items(), key=lambda item: -item[1]):
        alone = account.speed_alone.get(machine)
        table.add_row(
            machine,
            f"{samples:,}",
            percent(samples / total if total else 0.0),
            f"{samples / account.wall_s:,.1f}",
            "" if alone is None else f"{alone:,.1f}",
        )
    for machine in account.benched.keys() - account.samples.keys():
        table.add_row(machine, "0", "benched", "", "")
    print_table(console, table)


def show_account(console: Console, account: Account, most: int | None = None, num_steps: int = 0) -> None:
    """Print achieved and predicted speed, and at most `most` losses; `num_steps`: the steps of the run so far."""
    _lines(console, basis(account, num_steps))
    print_rows(console, figures(account))
    is_known = account.efficiency is not None
    losses = [loss for loss in account.losses if loss.part >= 0.001 or not is_known]
    headings = ["time lost to", "on", "itself", "others", *(["of the sum"] if is_known else [])]
    table = plain_table(*headings)
    for loss in losses[:most]:
        cells = [
            CAUSES[loss.cause],
            f"{loss.machine}'s link" if _is_of_a_link(account, loss) else loss.machine,
            seconds_text(loss.seconds) if loss.seconds >= _LEAST_S else "",
            seconds_text(loss.waited_s) if loss.waited_s >= _LEAST_S else "",
        ]
        table.add_row(*cells, *([percent(loss.part)] if is_known else []))
    if smaller := losses[len(losses) if most is None else most :]:
        rest = [percent(sum(loss.part for loss in smaller))] if is_known else []
        table.add_row(counted(len(smaller), "smaller loss", "smaller losses"), "", "", "", *rest)
    if table.row_count:
        _lines(console, "time that each machine lost itself, and that others lost by waiting for it:")
        print_table(console, table, ("others",))
    _lines(console, *explanations(account), *closing_lines(account))


def _is_of_a_link(account: Account, loss: Loss) -> bool:
    return loss.cause == "exposed_exchange" and loss.machine == account.slowest_link


def _lines(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)
