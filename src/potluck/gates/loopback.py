"""Addresses of a cluster's machines: machine k has the same address of 127.0.0.0/8 on every machine.

Linux takes any address of 127.0.0.0/8 on its loopback interface, without root. A cluster has a block of 4096 of them.
The first one is the host's, whichever machine is the host: workers dial its lighthouse there.
"""

import ipaddress
import secrets
import socket
import struct
from pathlib import Path

from potluck.core.errors import GateError
from potluck.machine.loopback import ANY_ADDRESS, try_loopback

_LOOPBACK = int(ipaddress.IPv4Address("127.0.0.0"))
_BLOCK_BITS = 12
_FIRST_BLOCK = 16  # 127.0.0.1, 127.0.0.53 and 127.0.1.1 have other uses
_NUM_BLOCKS = (1 << 24 - _BLOCK_BITS) - 1  # not the last one: 127.255.255.255 is for broadcasts
MOST_MACHINES = (1 << _BLOCK_BITS) - 2
_LISTENING = "0A"


def choose_block(in_use: set[str] | None = None) -> str:
    """The first address of a random block in which no program of this machine listens, such as 127.77.16.0."""
    taken = listening_addresses() if in_use is None else in_use
    used = {(int(ipaddress.IPv4Address(address)) - _LOOPBACK) >> _BLOCK_BITS for address in taken}
    while True:
        number = _FIRST_BLOCK + secrets.randbelow(_NUM_BLOCKS - _FIRST_BLOCK)
        if number not in used:
            return str(ipaddress.IPv4Address(_LOOPBACK + (number << _BLOCK_BITS)))


def address_of(block: str, number: int) -> str:
    """The loopback address of machine `number`, the same on every machine of the cluster."""
    if not 1 <= number <= MOST_MACHINES:
        raise GateError(
            f"a cluster has room for {MOST_MACHINES} machines",
            fix="take machines that are gone off the roster: potluck leave NAME",
        )
    return str(ipaddress.IPv4Address(block) + number)


def host_address(block: str) -> str:
    """The address at which the workers of every machine dial the host's lighthouses, whichever machine is the host."""
    return block


def lighthouse_address(block: str) -> str:
    """The address at which lighthouses listen on the host's machine. Nothing else does, so every port is free there."""
    return str(ipaddress.IPv4Address(block) + MOST_MACHINES + 1)


def check_takes(address: str = ANY_ADDRESS) -> None:
    """GateError unless programs can listen at an address of this machine's loopback interface."""
    trouble = try_loopback(address)
    if trouble:
        raise GateError(
            f"this machine's loopback interface does not take {address}: {trouble}",
            fix="sudo ip link set dev lo up; where that does not help, start the workers without a host, as "
            "docs/several-workers.md shows: their traffic is then in the open",
        )


def listening_addresses() -> set[str]:
    """Addresses of 127.0.0.0/8 that some program listens on here."""
    return {address for address, _, _ in _listeners() if address.startswith("127.")}


def listening_ports(address: str, inodes: set[int]) -> set[int]:
    """Ports of an address that sockets with these inodes listen on."""
    return {port for at, port, inode in _listeners() if at == address and inode in inodes}


def _listeners() -> list[tuple[str, int, int]]:
    """Address, port and inode of every IPv4 socket that listens in this network namespace."""
    found = []
    try:
        lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return []
    for line in lines:
        fields = line.split()
        if fields[3] == _LISTENING:
            address, port = parse_end(fields[1])
            found.append((address, port, int(fields[9])))
    return found


def parse_end(text: str) -> tuple[str, int]:
    """Parse an address and a port as the kernel prints them: 0100007F:1F90."""
    address, _, port = text.partition(":")
    return socket.inet_ntoa(struct.pack("=I", int(address, 16))), int(port, 16)


def spell_end(address: str, port: int) -> str:
    """Write an address and a port as the kernel prints them."""
    return f"{struct.unpack('=I', socket.inet_aton(address))[0]:08X}:{port:04X}"
