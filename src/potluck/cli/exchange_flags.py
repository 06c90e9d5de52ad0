"""The flags of `potluck run` that choose the exchange between machines."""

from dataclasses import fields
from typing import Any

from potluck.cli.flags import dashed
from potluck.core.errors import MeetingError
from potluck.core.exchange_options import ExchangeValue, check_exchange_options
from potluck.core.run_options import ExchangeOptions


def take_exchange(flags: dict[str, Any], *, is_plain: bool) -> dict[str, ExchangeValue]:
    """Remove the options of the exchange from the flags and return them, checked; a plain run can have none."""
    given = {field.name: flags.pop(field.name, None) for field in fields(ExchangeOptions)}
    exchange = check_exchange_options(given, lambda option: f"--{dashed(option)}")
    if exchange and is_plain:
        option = dashed(next(iter(exchange)))
        raise MeetingError(
            f"--{option} has no meaning with --plain: the script exchanges gradients itself",
            fix=f"leave --{option} out, or call potluck.start in the script",
        )
    return exchange
