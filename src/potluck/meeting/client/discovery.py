"""Hosts on the local network that announce themselves by mDNS."""

import time
from dataclasses import dataclass
from typing import Any

from potluck.meeting.wire import MDNS_SERVICE


@dataclass(frozen=True, slots=True)
class HeardHost:
    """A host that announces itself."""

    name: str
    address: str
    port: int
    fingerprint: bytes
    version: str


def hear_hosts(listen_s: float = 2.0) -> list[HeardHost]:
    """Hosts that answer by mDNS within `listen_s`."""
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
        browser = ServiceBrowser(zeroconf, MDNS_SERVICE, Listener())
        time.sleep(listen_s)
        browser.cancel()
    finally:
        zeroconf.close()
    return sorted(found.values(), key=lambda host: host.name)


def _read(info: Any) -> HeardHost | None:
    """Parse a host's announcement, which is unverified: anybody on the network can announce anything."""
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
