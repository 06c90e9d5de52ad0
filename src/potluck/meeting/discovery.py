"""Hosts on the local network, by mDNS: a host says where it is, never its token."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from potluck.core.version import __version__

if TYPE_CHECKING:
    from potluck.meeting.host import HostOptions
    from potluck.meeting.networks import Interface

_SERVICE = "_potluck._tcp.local."


@dataclass(frozen=True, slots=True)
class HeardHost:
    """A host that announces itself."""

    name: str
    address: str
    port: int
    fingerprint: bytes
    version: str


@asynccontextmanager
async def announcing(options: "HostOptions", interfaces: "list[Interface]", fingerprint: bytes) -> AsyncIterator[None]:
    """Let machines on the network hear of this host while the block lasts."""
    if not options.is_announced:
        yield
        return
    from zeroconf import IPVersion, ServiceInfo  # noqa: PLC0415
    from zeroconf.asyncio import AsyncZeroconf  # noqa: PLC0415

    addresses = [interface.address for interface in interfaces]
    info = ServiceInfo(
        _SERVICE,
        f"{options.machine}.{_SERVICE}",
        addresses=[socket.inet_aton(address) for address in addresses],
        port=options.port,
        properties={"fingerprint": fingerprint.hex(), "version": __version__, "host": options.machine},
        server=f"potluck-{options.machine}.local.",
    )
    try:
        zeroconf = AsyncZeroconf(interfaces=addresses, ip_version=IPVersion.V4Only)
    except OSError:  # no multicast here: the pasted line works all the same
        yield
        return
    # It first asks around for a second whether the name is free: nobody waits for that.
    registering = asyncio.create_task(zeroconf.async_register_service(info, allow_name_change=True))
    try:
        yield
    finally:
        registering.cancel()
        await asyncio.gather(registering, return_exceptions=True)
        await zeroconf.async_close()


def hear_hosts(listen_s: float = 2.0) -> list[HeardHost]:
    """Hosts that answer within that time."""
    from zeroconf import IPVersion, ServiceBrowser, ServiceListener, Zeroconf  # noqa: PLC0415

    found: dict[str, HeardHost] = {}

    class Listener(ServiceListener):
        def add_service(self, zeroconf: Any, kind: str, name: str) -> None:
            info = zeroconf.get_service_info(kind, name, timeout=1000)
            if info is not None and (host := _read(info)) is not None:
                found[name] = host

        def update_service(self, zeroconf: Any, kind: str, name: str) -> None:
            self.add_service(zeroconf, kind, name)

        def remove_service(self, zeroconf: Any, kind: str, name: str) -> None:  # noqa: ARG002
            found.pop(name, None)

    zeroconf = Zeroconf(ip_version=IPVersion.V4Only)
    try:
        browser = ServiceBrowser(zeroconf, _SERVICE, Listener())
        time.sleep(listen_s)
        browser.cancel()
    finally:
        zeroconf.close()
    return sorted(found.values(), key=lambda host: host.name)


def _read(info: Any) -> HeardHost | None:
    """What a host says of itself; anybody on the network can say anything, so it is only ever an offer."""
    try:
        values = {key.decode(): (value or b"").decode() for key, value in info.properties.items()}
        return HeardHost(
            name=values["host"][:63],
            address=info.parsed_addresses()[0],
            port=int(info.port),
            fingerprint=bytes.fromhex(values["fingerprint"]),
            version=values.get("version", ""),
        )
    except (KeyError, ValueError, IndexError, UnicodeDecodeError):
        return None
