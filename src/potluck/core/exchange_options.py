"""Checks options of the exchange between machines wherever a user writes them: a script, a command, a variable."""

import math
from collections.abc import Callable, Mapping

from potluck.core.errors import SettingsError, did_you_mean

EXCHANGES = ("exact", "fp16", "int8", "int4", "rounds", "islands", "auto")
IN_ROUNDS = ("rounds", "islands")
"""Exchanges of weights after many steps, not of gradients after every step."""
EXCHANGE_VARIABLES = {
    "exchange": "POTLUCK_EXCHANGE",
    "loss_price": "POTLUCK_LOSS_PRICE",
    "round_steps": "POTLUCK_ROUND_STEPS",
    "warm_up_steps": "POTLUCK_WARM_UP_STEPS",
    "islands": "POTLUCK_ISLANDS",
}
"""By option: the environment variable that brings its value from `potluck run` to every worker."""
ExchangeValue = str | int | float


def may_be_rounds(exchange: str) -> bool:
    """Whether a run with this option of the exchange may train in rounds."""
    return exchange in (*IN_ROUNDS, "auto")


def check_exchange_options(
    values: Mapping[str, object], spelled: Callable[[str], str] = str
) -> dict[str, ExchangeValue]:
    """The values by the name of their option, with their types; SettingsError for a wrong one. None counts as absent.

    `spelled` returns an option's name as the user wrote it, for the error.
    """
    readers: dict[str, Callable[[str, object], ExchangeValue]] = {
        "exchange": _read_exchange,
        "loss_price": _read_loss_price,
        "round_steps": lambda name, value: _read_steps(name, value, least=1),
        "warm_up_steps": lambda name, value: _read_steps(name, value, least=0),
        "islands": _read_islands,
    }
    unknown = sorted(values.keys() - readers.keys())
    if unknown:
        raise SettingsError(
            f"{unknown[0]!r} is no option of the exchange between machines", fix=did_you_mean(unknown[0], list(readers))
        )
    return {name: readers[name](spelled(name), value) for name, value in values.items() if value is not None}


def _read_exchange(name: str, value: object) -> str:
    if isinstance(value, str) and value in EXCHANGES:
        return value
    raise SettingsError(f"{name} cannot be {value!r}", fix=f"choose one of {', '.join(EXCHANGES)}")


def _read_islands(name: str, value: object) -> str:
    islands = [island.split("+") for island in str(value).split(",")]
    machines = [machine for island in islands for machine in island]
    if isinstance(value, str) and all(machines) and len(set(machines)) == len(machines):
        return value
    raise SettingsError(
        f"{name} cannot be {value!r}",
        fix=f"give {name} as machines with good links to each other, each machine once: rosa+lily,fern+moss",
    )


def _read_loss_price(name: str, value: object) -> float:
    try:
        price = math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        price = math.nan
    if 0 <= price <= 100:
        return price
    raise SettingsError(
        f"{name} cannot be {value!r}",
        fix=f"give {name} as percent of loss, from 0 to 100: 2 means that the loss may end 2 % higher",
    )


def _read_steps(name: str, value: object, *, least: int) -> int:
    try:
        steps = least - 1 if isinstance(value, bool) else int(str(value))
    except ValueError:
        steps = least - 1
    if steps >= least:
        return steps
    raise SettingsError(f"{name} cannot be {value!r}", fix=f"give {name} as a number of steps, at least {least}")
