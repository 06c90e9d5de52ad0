"""A host announces itself on the local network by mDNS: where it is, never its token."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from potluck.core.version import __version__
from potluck.meeting.wire import MDNS_SERVICE


@asynccontextmanager
async def announcing(machine: str, port: int, addresses: list[str], fingerprint: bytes) -> AsyncIterator[None]:
    """Announce this host by mDNS while the block lasts."""
    from zeroconf import IPVersion, ServiceInfo  # noqa: PLC0415
    from zeroconf.asyncio import AsyncZeroconf  # noqa: PLC0415

    info = ServiceInfo(
        MDNS_SERVICE,
        f"{machine}.{MDNS_SERVICE}",
        addresses=[socket.inet_aton(address) for address in addresses],
        port=port,
        properties={"fingerprint": fingerprint.hex(), "version": __version__, "host": machine},
        server=f"potluck-{machine}.local.",
    )
    try:
        zeroconf = AsyncZeroconf(interfaces=addresses, ip_version=IPVersion.V4Only)
    except OSError:  # no multicast here: joining with the pasted line still works
        yield
        return
    # zeroconf first probes for a second whether the name is free; the host does not wait for that.
    registering = asyncio.create_task(zeroconf.async_register_service(info, allow_name_change=True))
    try:
        yield
    finally:
        registering.cancel()
        await asyncio.gather(registering, return_exceptions=True)
        await zeroconf.async_close()
