"""What a ruleset of nftables does with a new TCP connection: the rules are walked as the kernel walks them."""

import fnmatch
import ipaddress
from dataclasses import dataclass
from typing import Any

ACCEPT, BLOCK, UNCLEAR = "accept", "block", "unclear"
_GO_ON, _RETURN = "go on", "return"
_BLOCKING = ("drop", "reject", "queue")
_SILENT = ("counter", "log", "comment")
_MOST_JUMPS = 32
# What a match can look at, as (kind or protocol, key or field). A "th" field is that of any transport protocol.
_FIELDS = {
    ("ct", "state"): "state",
    ("meta", "l4proto"): "protocol",
    ("meta", "nfproto"): "family",
    ("meta", "protocol"): "family",
    ("meta", "iifname"): "interface",
    ("meta", "iif"): "interface",
    ("tcp", "dport"): "port",
    ("th", "dport"): "port",
    ("ip", "saddr"): "source",
    ("ip", "protocol"): "protocol",
}
_PROTOCOLS = {"ip6": "ip6"} | dict.fromkeys(("udp", "udplite", "icmp", "icmpv6", "igmp", "sctp"), "other protocol")
_VALUES: dict[str, tuple[object, ...]] = {"protocol": ("tcp", 6), "family": ("ipv4", "ip"), "state": ("new",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingConnection:
    """The first packet of a TCP connection to this machine, from some address of a network."""

    network: str  # 192.168.1.0/24
    port: int
    interface: str


def judge_connection(ruleset: dict[str, Any], connection: IncomingConnection) -> str:
    """ACCEPT or BLOCK; UNCLEAR if the verdict depends on a match that this file does not know, or on the sender.

    `ruleset` is the output of `nft --json list ruleset`. Every base chain at the input hook has to accept the packet.
    """
    entries = ruleset.get("nftables", [])
    walk = _Walk(entries, connection)
    outcomes = []
    for chain in (entry["chain"] for entry in entries if "chain" in entry):
        is_ours = chain["family"] in ("ip", "inet") and chain.get("hook") == "input" and chain.get("type") == "filter"
        if is_ours:
            found = walk.outcomes(chain["family"], chain["table"], chain["name"])
            policy = BLOCK if chain.get("policy") == "drop" else ACCEPT
            outcomes.append({policy if one in (_GO_ON, _RETURN) else one for one in found})
    if any(found == {BLOCK} for found in outcomes):
        return BLOCK
    return UNCLEAR if any(BLOCK in found for found in outcomes) else ACCEPT


class _Walk:
    """Follows one packet through chains. A match whose result is not known leaves both outcomes open."""

    def __init__(self, entries: list[dict[str, Any]], connection: IncomingConnection) -> None:
        self._connection = connection
        self._network = ipaddress.ip_network(connection.network)
        self._rules: dict[tuple[str, str, str], list[list[dict[str, Any]]]] = {}
        self._sets: dict[tuple[str, str, str], list[Any]] = {}
        for entry in entries:
            if "rule" in entry:
                rule = entry["rule"]
                place = (rule["family"], rule["table"], rule["chain"])
                self._rules.setdefault(place, []).append(rule.get("expr", []))
            for kind in ("set", "map"):
                if kind in entry:
                    one = entry[kind]
                    self._sets[one["family"], one["table"], one["name"]] = one.get("elem", [])

    def outcomes(self, family: str, table: str, chain: str, jumps: int = 0) -> set[str]:
        """All possible ends of the walk through a chain: ACCEPT, BLOCK, _RETURN, or _GO_ON at the chain's end."""
        if jumps > _MOST_JUMPS:
            return {ACCEPT, BLOCK}
        found: set[str] = set()
        for rule in self._rules.get((family, table, chain), []):
            verdicts = self._apply(rule, family, table, jumps)
            found |= verdicts - {_GO_ON}
            if _GO_ON not in verdicts:
                return found
        return found | {_GO_ON}

    def _apply(self, rule: list[dict[str, Any]], family: str, table: str, jumps: int) -> set[str]:
        """The possible outcomes of one rule; _GO_ON if the next rule is reached."""
        is_certain = True
        for expression in rule:
            kind = next(iter(expression))
            if kind == "match":
                matches = self._matches(expression["match"], (family, table))
                if matches is False:
                    return {_GO_ON}
                is_certain = is_certain and matches is True
            elif kind == "vmap":
                return self._look_up(expression["vmap"], family, table, jumps) | (set() if is_certain else {_GO_ON})
            elif (verdict := self._verdict(expression, family, table, jumps)) is not None:
                return verdict | (set() if is_certain else {_GO_ON})
            elif kind not in _SILENT:  # a limit, or an extension of iptables
                is_certain = False
                if kind == "xt" and expression["xt"].get("type") == "target":
                    return {ACCEPT, BLOCK, _GO_ON}
        return {_GO_ON}

    def _verdict(self, expression: dict[str, Any], family: str, table: str, jumps: int) -> set[str] | None:
        kind = next(iter(expression))
        if kind == "accept":
            return {ACCEPT}
        if kind in _BLOCKING:
            return {BLOCK}
        if kind in ("return", "continue"):
            return {_RETURN if kind == "return" else _GO_ON}
        if kind == "jump":
            inside = self.outcomes(family, table, expression["jump"]["target"], jumps + 1)
            return {_GO_ON if one == _RETURN else one for one in inside}
        if kind == "goto":
            inside = self.outcomes(family, table, expression["goto"]["target"], jumps + 1)
            return {_RETURN if one == _GO_ON else one for one in inside}
        return None

    def _look_up(self, vmap: dict[str, Any], family: str, table: str, jumps: int) -> set[str]:
        found: set[str] = set()
        for key, verdict in self._elements(vmap["data"], (family, table)):
            matches = self._equals(vmap["key"], key, (family, table))
            if matches is not False:
                found |= self._verdict(verdict, family, table, jumps) or {_GO_ON}
            if matches is True:
                return found
        return found | {_GO_ON}

    def _matches(self, match: dict[str, Any], place: tuple[str, str]) -> bool | None:
        """Whether the packet matches; None if that is not known."""
        operator = match["op"]
        if operator in ("==", "in", "!="):
            equal = self._equals(match["left"], match["right"], place)
            return equal if operator != "!=" or equal is None else not equal
        return None

    def _equals(self, left: Any, right: Any, place: tuple[str, str]) -> bool | None:
        field = _field_of(left)
        if field in ("ip6", "other protocol"):
            return False
        if field == "unknown":
            return None
        answers = [self._is(field, one) for one in self._elements(right, place)]
        if True in answers:
            return True
        return None if None in answers else False

    def _elements(self, right: Any, place: tuple[str, str]) -> list[Any]:
        """The values on a match's right side: of a set, of a named set, or the one value."""
        if isinstance(right, str) and right.startswith("@"):
            right = {"set": self._sets.get((*place, right[1:]), [])}
        if isinstance(right, dict) and "set" in right:
            right = right["set"]
        values = right if isinstance(right, list) else [right]
        return [one["elem"]["val"] if isinstance(one, dict) and "elem" in one else one for one in values]

    def _is(self, field: str, value: Any) -> bool | None:
        if field == "port":
            return self._is_port(value)
        if field == "interface":
            return fnmatch.fnmatchcase(self._connection.interface, str(value))
        return value in _VALUES[field] if field in _VALUES else self._is_from(value)

    def _is_port(self, value: Any) -> bool | None:
        if isinstance(value, dict) and "range" in value:
            low, high = value["range"]
            return int(low) <= self._connection.port <= int(high)
        return value == self._connection.port if isinstance(value, int) else None

    def _is_from(self, value: Any) -> bool | None:
        """Whether the sender is in a network, a range or at an address; None for a part of the senders."""
        try:
            if isinstance(value, dict) and "prefix" in value:
                networks = [ipaddress.ip_network(f"{value['prefix']['addr']}/{value['prefix']['len']}")]
            elif isinstance(value, dict) and "range" in value:
                low, high = (ipaddress.ip_address(one) for one in value["range"])
                networks = list(ipaddress.summarize_address_range(low, high))
            else:
                networks = [ipaddress.ip_network(value)]
        except (ValueError, TypeError):
            return None
        same = [one for one in networks if one.version == self._network.version and one.overlaps(self._network)]
        if not same:
            return False
        return True if any(self._network.subnet_of(one) for one in same) else None  # type: ignore[arg-type]


def _field_of(left: Any) -> str:
    """What a match looks at, as far as it is known for a new TCP connection over IPv4."""
    if not isinstance(left, dict):
        return "unknown"
    if "payload" not in left:
        kind, what = next(iter(left.items()))
        return _FIELDS.get((kind, what.get("key", "")), "unknown") if isinstance(what, dict) else "unknown"
    protocol, field = left["payload"].get("protocol", ""), left["payload"].get("field", "")
    return _PROTOCOLS.get(protocol) or _FIELDS.get((protocol, field), "unknown")
