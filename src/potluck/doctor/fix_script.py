"""Scripts for users to review and run: they let only the named peers through the firewall; each has an undo script."""

import ipaddress
import re
import shlex
from collections.abc import Sequence
from importlib import resources

from potluck.core.environment import DEFAULT_PORT
from potluck.core.errors import SettingsError, did_you_mean
from potluck.doctor.examination import Peer

SYSTEMS = ("linux", "windows")
_WIDEST = 16  # bits of the prefix
_SUFFIX = {"linux": "sh", "windows": "ps1"}


def parse_peer(text: str) -> Peer:
    """Parse ADDRESS, NAME=ADDRESS or NETWORK/PREFIX, strictly: all go into a script that the user runs as root."""
    name, _, address = text.rpartition("=")
    if "/" in address:
        return Peer(name="", address=_network(text))
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        raise SettingsError(
            f"{text!r} is no peer",
            fix="write --peer 192.168.1.20, --peer lily=192.168.1.20, or --peer 192.168.1.0/24 for a whole network",
        ) from None
    if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}", name):
        raise SettingsError(f"{name!r} is no machine's name", fix="write --peer lily=192.168.1.20")
    return Peer(name=name, address=address)


def _network(text: str) -> str:
    """A network whose machines keep being let in when the router gives them other addresses."""
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError:
        try:
            meant = ipaddress.IPv4Interface(text)
        except ValueError:
            raise SettingsError(f"{text!r} is no network", fix="write --peer 192.168.1.0/24") from None
        raise SettingsError(
            f"{text!r} is an address within a network",
            fix=f"write --peer {meant.ip} for this machine alone, or --peer {meant.network} for all of its network",
        ) from None
    if network.prefixlen < _WIDEST:
        raise SettingsError(
            f"{text!r} is {network.num_addresses:,} addresses: a script opens a home's network, not more",
            fix="write --peer 192.168.1.0/24 with the numbers of your network",
        )
    return str(network)


def _first_address(peer: str) -> str:
    """The peer's address, or the first machine's address of a network."""
    network = ipaddress.IPv4Network(peer)
    return str(network[1] if network.num_addresses > 2 else network[0])


def write_fix_script(
    system: str, machine: str, peers: Sequence[Peer], *, port: int = DEFAULT_PORT, undo: bool = False
) -> str:
    """The script that lets the peers dial one machine's port; with `undo`, the script that takes that back."""
    if system not in SYSTEMS:
        raise SettingsError(f"no fix script is for {system!r}", fix=did_you_mean(system, SYSTEMS))
    if not peers:
        raise SettingsError(
            "a fix script lets only the peers in, and none is named",
            fix=f"add them: potluck doctor --fix-script {system} --peer 192.168.1.20",
        )
    scripts = resources.files("potluck.doctor") / "scripts"
    template = scripts / f"{system}{'_undo' * undo}.{_SUFFIX[system]}"
    addresses = sorted({peer.address for peer in peers}, key=ipaddress.IPv4Network)
    words = {
        "MACHINE": re.sub(r"[^A-Za-z0-9._-]", "-", machine),
        "OWNER": (scripts / "windows_owner.ps1").read_text().rstrip(),
        "PORT": str(port),
        "PEERS": " ".join(addresses),
        "FIRST_PEER": _first_address(addresses[0]),
        "PEERS_QUOTED": ", ".join(f"'{address}'" for address in addresses),
        "HOSTS": " ".join(shlex.quote(f"{peer.address} {peer.name}") for peer in peers if peer.name),
    }
    return re.sub(r"@([A-Z_]+)@", lambda match: words[match[1]], template.read_text())
