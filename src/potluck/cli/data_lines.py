"""How much of a run's data each machine has, in lines for people."""

import time
from collections.abc import Collection
from typing import Any

_EVERY_S = 10.0


def data_lines(data: dict[str, Any] | None) -> list[str]:
    """A run's folders of data, and which machines have how much of them."""
    if not data or not data["folders"]:
        return []
    names = ", ".join(
        f"{one['name']} ({one['size_bytes'] / 1e9:,.2f} GB, from {one['source']})" for one in data["folders"]
    )
    parts = [
        f"{machine} {_share(one)}{'; ' + one['trouble'] if one['trouble'] else ''}"
        for machine, one in data["machines"].items()
    ]
    return [f"data {names}: {', '.join(parts) or 'no machine has begun'}"]


def _share(one: dict[str, Any]) -> str:
    return "all" if one["have_bytes"] >= one["total_bytes"] else f"{one['have_bytes'] / one['total_bytes']:.0%}"


class DataTeller:
    """Tells a run's display from time to time how much of the data has arrived, and once that all of it has."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()
        self._is_done = False

    def line(self, data: dict[str, Any] | None, workers: Collection[str]) -> str:
        """The line that is due, for a run with workers on these machines; empty if none is."""
        if self._is_done or not data or not data["machines"]:
            return ""
        whole = {name for name, one in data["machines"].items() if one["have_bytes"] >= one["total_bytes"]}
        if whole >= {*workers, *data["machines"]}:
            self._is_done = True
            return "data: every machine has all of it" if len(whole) > 1 else ""
        if time.monotonic() < self._told_at + _EVERY_S:
            return ""
        self._told_at = time.monotonic()
        return f"data: {', '.join(f'{machine} {_share(one)}' for machine, one in data['machines'].items())}"
