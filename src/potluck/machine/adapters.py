"""Gives the interfaces of WSL the kind and the speed of the Windows adapters behind them.

Linux inside WSL sees virtual cards only: every one of them is wired, and its speed is 10 Gbit/s or unknown.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from potluck.machine.facts import WIRED, WIRELESS, Adapter, Interface, Windows


def with_adapters(interfaces: Sequence[Interface], windows: Windows | None) -> tuple[Interface, ...]:
    """The interfaces of a WSL guest, each wired one with the kind and speed of its adapter, if the adapter is known."""
    return tuple(_with(one, _adapter_of(one, windows)) for one in interfaces) if windows else tuple(interfaces)


def is_real(adapter: Adapter) -> bool:
    """Whether the adapter leads out of the computer: it is no switch of Hyper-V, loopback or Bluetooth."""
    return not re.match(r"vEthernet|Loopback|Bluetooth", adapter.alias)


def main_adapter(windows: Windows) -> Adapter | None:
    """The adapter that Windows prefers: of those that are up and have an address, the one with the lowest metric."""
    live = [one for one in windows.adapters if one.is_up and one.addresses and is_real(one)]
    return min(live, key=lambda one: (one.metric is None, one.metric or 0), default=None)


def address_outside(address: str, windows: Windows | None) -> str:
    """The address at which other machines see a WSL guest: behind NAT that of the adapter that Windows prefers."""
    if windows is None or any(address in one.addresses for one in windows.adapters):
        return address
    adapter = main_adapter(windows)
    return adapter.addresses[0] if adapter else address


def _adapter_of(interface: Interface, windows: Windows) -> Adapter | None:
    """In mirrored mode the adapter with the interface's address; behind NAT the adapter that Windows prefers."""
    if interface.kind != WIRED or not interface.addresses:
        return None
    mine = {address.partition("/")[0] for address in interface.addresses}
    same = next((one for one in windows.adapters if one.is_up and mine & set(one.addresses)), None)
    return same or main_adapter(windows)


def _with(interface: Interface, adapter: Adapter | None) -> Interface:
    if adapter is None:
        return interface
    kind = WIRELESS if adapter.is_wireless else WIRED
    return replace(interface, kind=kind, speed_mbit=adapter.speed_mbit, adapter=adapter.alias)
