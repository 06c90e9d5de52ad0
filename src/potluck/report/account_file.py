"""A run's account in its folder, for people and scripts that come later."""

import json
from typing import Any

from potluck.core.atomic import write_text
from potluck.core.run_folder import RunFolder
from potluck.report.account import Account, Loss, read_account

NAME = "account.json"


def write_account(folder: RunFolder) -> Account | None:
    """Work a run's account out from its events and keep it beside them; None if no step is whole."""
    account = read_account(folder)
    if account is not None:
        write_text(folder.path / NAME, json.dumps(account.as_data(), indent=2, allow_nan=False) + "\n")
    return account


def account_from_data(data: dict[str, Any]) -> Account:
    """What `Account.as_data` gave, or what a file of it says."""
    known = {name: value for name, value in data.items() if name in Account.__dataclass_fields__}
    return Account(**{**known, "losses": tuple(Loss(**loss) for loss in data["losses"])})
