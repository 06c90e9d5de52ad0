"""Makes accounts from event files, and writes a run's account into its folder as account.json."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from potluck.core.atomic import write_text
from potluck.core.run_folder import RunFolder
from potluck.events.log import read_records
from potluck.events.types import Record
from potluck.report.account import Account, Loss
from potluck.report.merge import Merge

NAME = "account.json"


def make_account(records: Mapping[str, Iterable[Record]], first_step: int = 1) -> Account | None:
    """The account of the steps from `first_step` on, from the records of every worker by name; None if no step counts.

    Only steps with a timing of every participating worker count: the wait for others follows from all timings.
    """
    merge = Merge(first_step=first_step, most_pending=None)
    for worker, lines in records.items():
        merge.take(worker, list(lines))
    return merge.account()


def read_account(folder: RunFolder, first_step: int = 1) -> Account | None:
    """The account of a run from its folder."""
    return make_account({file.stem: read_records(file) for file in folder.event_files()}, first_step)


def write_account(folder: RunFolder) -> Account | None:
    """Make a run's account from its events and write it to account.json; None, and no file, if no step counts."""
    account = read_account(folder)
    if account is not None:
        write_text(folder.path / NAME, json.dumps(account.as_data(), indent=2, allow_nan=False) + "\n")
    return account


def account_from_data(data: dict[str, Any]) -> Account:
    """The account from the data of `Account.as_data` or of account.json; unknown keys are ignored."""
    known = {name: value for name, value in data.items() if name in Account.__dataclass_fields__}
    return Account(**{**known, "losses": tuple(Loss(**loss) for loss in data["losses"])})
