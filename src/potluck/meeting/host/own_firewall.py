"""Looks at the host's own firewall before a machine joins: the rule that lets machines in is printed at once."""

from collections.abc import Sequence

import msgspec

from potluck.doctor.examination import is_on_bridge
from potluck.doctor.finding import in_one_line
from potluck.doctor.firewall_fixes import open_for
from potluck.machine.facts import Facts
from potluck.machine.firewall_port import can_read_rules, judge_port
from potluck.machine.nft_verdict import ACCEPT, BLOCK, UNCLEAR, IncomingConnection
from potluck.meeting.access.networks import ReachableInterface


def firewall_lines(seen: Facts, interfaces: Sequence[ReachableInterface], port: int) -> list[str]:
    """What this machine's firewall does to the port and the command that lets in its networks; empty if it is open."""
    if seen.system.is_image_container and can_read_rules():  # those rules are of the network that this host is on
        seen = msgspec.structs.replace(seen, system=msgspec.structs.replace(seen.system, container=None))
    verdict = _judge(seen, interfaces, port)
    if verdict == ACCEPT:
        return []
    networks = sorted({one.network for one in interfaces})
    fix = open_for(seen, networks, port)
    if seen.system.is_image_container:
        return [f"other machines reach port {port} if the computer around this container lets them:", f"  {fix.note}"]
    name = "Windows' firewall" if seen.wsl is not None else f"the firewall here ({', '.join(seen.firewall.tools)})"
    if not seen.firewall.tools and seen.wsl is None:
        name = "the firewall here"
    peers = ", ".join(networks)
    where = "here" if seen.wsl is None else "on Windows"
    if verdict == BLOCK:
        said = f"{name} keeps other machines out of port {port}. To let in those of {peers}, type {where}:"
    else:
        said = (
            f"{name} may keep other machines out of port {port}: not all of its rules can be read. "
            f"If it does not yet let in {peers}, type {where}:"
        )
    return [said, f"  {in_one_line(fix)}", f"  ({fix.note})"]


def _judge(seen: Facts, interfaces: Sequence[ReachableInterface], port: int) -> str:
    if seen.wsl is not None:  # the Hyper-V firewall guards a mirrored WSL; other modes are a finding of the doctor
        return UNCLEAR if seen.wsl.mode == "mirrored" else ACCEPT
    if seen.system.is_image_container:
        # It cannot see the firewall that guards it; Docker lets the ports that it publishes through that firewall.
        return ACCEPT if is_on_bridge(seen.system, seen.addresses) else UNCLEAR
    return judge_port(
        seen.firewall,
        [IncomingConnection(network=one.network, port=port, interface=one.name) for one in interfaces],
    )
