"""Whether this machine's own firewall lets the machines of its network dial a port."""

import ipaddress
import json
from collections.abc import Iterable
from pathlib import Path

from potluck.machine.asking import NoAnswerError, ask
from potluck.machine.facts import Firewall
from potluck.machine.nft_verdict import ACCEPT, BLOCK, UNCLEAR, IncomingConnection, judge_connection

_UFW_RULES = Path("/etc/ufw/user.rules")
_UFW_DEFAULTS = Path("/etc/default/ufw")
_NFTABLES_SERVICE = Path("/etc/systemd/system/sysinit.target.wants/nftables.service")


def judge_port(firewall: Firewall, connections: Iterable[IncomingConnection]) -> str:
    """ACCEPT, BLOCK or UNCLEAR for connections from the machine's networks: the worst of them.

    UNCLEAR if a firewall is on whose rules this user may not read.
    """
    verdicts = [_judge(firewall, one) for one in connections]
    return next((worst for worst in (BLOCK, UNCLEAR) if worst in verdicts), ACCEPT)


def can_read_rules() -> bool:
    """Whether nftables is installed here, and lets this user read the rules of this network namespace."""
    try:
        ask(["nft", "--json", "list", "ruleset"])
    except NoAnswerError:
        return False
    return True


def _judge(firewall: Firewall, connection: IncomingConnection) -> str:
    if "ufw" in firewall.tools:
        return _read_ufw(connection)
    try:
        ruleset = ask(["nft", "--json", "list", "ruleset"])
    except NoAnswerError:
        pass
    else:
        try:
            return judge_connection(json.loads(ruleset), connection)
        except (ValueError, KeyError, TypeError, AttributeError):  # a rule in a form that is not known here
            return UNCLEAR
    if "firewalld" in firewall.tools:
        return _ask_firewalld(connection)
    if "iptables" in firewall.tools or _NFTABLES_SERVICE.exists():
        return UNCLEAR
    return ACCEPT


def _read_ufw(connection: IncomingConnection) -> str:
    try:
        rules, defaults = _UFW_RULES.read_text(), _UFW_DEFAULTS.read_text()
    except OSError:
        return UNCLEAR
    return judge_ufw(rules, defaults, connection)


def judge_ufw(rules: str, defaults: str, connection: IncomingConnection) -> str:
    """The verdict of ufw's file user.rules; without a rule that fits, of DEFAULT_INPUT_POLICY in /etc/default/ufw."""
    network = ipaddress.ip_network(connection.network)
    is_partly_open = False
    for line in rules.splitlines():
        words = line.removeprefix("### tuple ### ").split()
        if not line.startswith("### tuple ###") or len(words) < 7:
            continue
        action, protocol, port, _, _, source, direction = *words[:6], words[-1]
        way, _, interface = direction.partition("_")
        if way != "in" or protocol not in ("any", "tcp") or interface not in ("", connection.interface):
            continue
        if not _covers(port, connection.port):
            continue
        try:
            rule_network = ipaddress.ip_network(source)
        except ValueError:
            continue
        is_allowed = action.partition("_")[0] in ("allow", "limit")
        if network.version == rule_network.version and network.subnet_of(rule_network):  # type: ignore[arg-type]
            return ACCEPT if is_allowed else BLOCK
        is_partly_open |= is_allowed and network.overlaps(rule_network)
    if 'DEFAULT_INPUT_POLICY="ACCEPT"' in defaults:
        return ACCEPT
    return UNCLEAR if is_partly_open else BLOCK


def _covers(ports: str, port: int) -> bool:
    """Whether ufw's port, list or range contains the port: 29500, 22,80, 29000:29999, any."""
    if ports == "any":
        return True
    for part in ports.split(","):
        low, _, high = part.partition(":")
        if low.isdigit() and int(low) <= port <= int(high if high.isdigit() else low):
            return True
    return False


def _ask_firewalld(connection: IncomingConnection) -> str:
    """What firewalld says to a user who may not read the rules themselves."""
    port = f'port port="{connection.port}" protocol="tcp"'
    rule = f'rule family="ipv4" source address="{connection.network}" {port} accept'
    for question in (f"--query-port={connection.port}/tcp", f"--query-rich-rule={rule}"):
        try:
            if ask(["firewall-cmd", question]).strip() == "yes":
                return ACCEPT
        except NoAnswerError as error:
            if not str(error).endswith("status 1"):  # how firewall-cmd says no
                return UNCLEAR
    return BLOCK
