"""Prints the account of a plain run: how it ended, who was busy and who waited, and where the script's files are."""

from collections.abc import Sequence

from rich.text import Text

from potluck.cli.fitting import print_table
from potluck.cli.plan_tables import plain_table
from potluck.cli.terminal import Console
from potluck.core.words import duration
from potluck.report.plain_account import PlainAccount


def show_plain(
    console: Console,
    run: str,
    status: str,
    account: PlainAccount,
    *,
    what: str = "",
    message: str = "",
    repeat: Sequence[str] = (),
) -> None:
    """Print what is known of a plain run from outside; `message` is the error that ended it, `repeat` the commands."""
    console.print()
    took = f" after {duration(account.seconds)}" if account.machines else ""
    console.print(Text(f"{run}: {status}{took}", style="bold"), soft_wrap=True)
    for line in filter(None, (what, *message.splitlines())):
        console.print(Text(f"  {line}"), soft_wrap=True)
    if account.machines:
        _show_machines(console, account)
    for line in filter(None, [account.verdict(), account.other_programs(), *account.written()]):
        console.print(Text(line), soft_wrap=True)
    for command in repeat:
        console.print(Text(f"repeat it: {command}"), soft_wrap=True)


def _show_machines(console: Console, account: PlainAccount) -> None:
    is_known = any(one.machine_cores is not None for one in account.machines)
    anything = ["busy with anything"] if is_known else []
    table = plain_table("machine", "device", "busy with the run", *anything, "sent", "received")
    for one in account.machines:
        whole = "not known" if one.machine_cores is None else f"{one.machine_cores:.1f} of {one.cores:g} cores"
        table.add_row(
            one.machine,
            one.device,
            one.busy_text,
            *([whole] if is_known else []),
            f"{one.sent_bytes / 1e6:,.1f} MB",
            f"{one.received_bytes / 1e6:,.1f} MB",
        )
    print_table(console, table, (*anything, "device"))
