"""Finds firewalls that may block packets. Rules are only read, and an ordinary user may not be allowed to read them."""

import json
from pathlib import Path
from typing import Any

from potluck.machine.asking import NoAnswerError, ask
from potluck.machine.facts import Chain, Firewall

_UFW = Path("/etc/ufw/ufw.conf")
_BLOCKING_VERDICTS = {"drop", "reject", "queue"}


def read_firewall() -> Firewall:
    """The active firewall tools, and the chains of nftables that filter incoming and outgoing packets."""
    tools: list[str] = []
    chains: tuple[Chain, ...] = ()
    is_readable = True
    if _ufw_is_enabled():
        tools.append("ufw")
    if _answers(["firewall-cmd", "--state"], "running"):
        tools.append("firewalld")
    try:
        chains = filter_chains(json.loads(ask(["nft", "--json", "list", "ruleset"])))
        if not tools and any(chain.may_block for chain in chains):
            tools.append("nftables")
    except NoAnswerError as error:
        is_readable = "not installed" in str(error)
        try:
            if not tools and blocks_input(ask(["iptables", "--list-rules", "INPUT"])):
                tools.append("iptables")
        except NoAnswerError as other:
            is_readable = is_readable and "not installed" in str(other)
    return Firewall(tools=tuple(tools), chains=chains, is_readable=is_readable or bool(tools))


def filter_chains(ruleset: dict[str, Any]) -> tuple[Chain, ...]:
    """Base chains for input and output; a chain may block by its policy, by its rules, or by those it may jump to."""
    entries = ruleset.get("nftables", [])
    chains = [entry["chain"] for entry in entries if "chain" in entry]
    hooked = {(chain["family"], chain["table"], chain["name"]) for chain in chains if "hook" in chain}
    refusing = set()
    for rule in (entry["rule"] for entry in entries if "rule" in entry):
        if any(word in expression for expression in rule.get("expr", []) for word in _BLOCKING_VERDICTS):
            place = (rule["family"], rule["table"], rule["chain"])
            # Any base chain of the table may jump to a chain without a hook.
            refusing |= {place} if place in hooked else {one for one in hooked if one[:2] == place[:2]}
    return tuple(
        Chain(
            family=chain["family"],
            table=chain["table"],
            name=chain["name"],
            may_block=chain.get("policy") == "drop" or (chain["family"], chain["table"], chain["name"]) in refusing,
            hook=chain["hook"],
        )
        for chain in chains
        if chain.get("hook") in ("input", "output") and chain.get("type") == "filter"
    )


def blocks_input(rules: str) -> bool:
    """Whether the rules that `iptables --list-rules INPUT` printed can block a packet."""
    return any(word in rules for word in ("-P INPUT DROP", "-j DROP", "-j REJECT"))


def _ufw_is_enabled() -> bool:
    try:
        return "ENABLED=yes" in _UFW.read_text()
    except OSError:
        return False


def _answers(command: list[str], word: str) -> bool:
    try:
        return word in ask(command)
    except NoAnswerError:
        return False
