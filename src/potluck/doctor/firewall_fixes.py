"""Commands that let the named peers through a machine's firewall, for each kind of firewall, with their undo."""

from collections.abc import Sequence

import msgspec

from potluck.doctor.finding import Fix, bash, by_hand, powershell
from potluck.machine.facts import Facts

WSL_VM_CREATOR = "{40E0AC32-46A5-438A-A0B2-2B479E8F2E90}"


def open_for(facts: Facts, peers: Sequence[str], port: int) -> Fix:
    """The fix that lets these addresses dial this machine's gate."""
    addresses = sorted(set(peers))
    if facts.wsl is not None or facts.system.family == "windows":
        return open_windows(facts, addresses, port)
    if facts.system.is_image_container:
        return _open_around(facts, addresses, port)
    tools = facts.firewall.tools
    if "ufw" in tools:
        return _open_ufw(facts, addresses, port)
    if "firewalld" in tools:
        return _open_firewalld(facts, addresses, port)
    if "iptables" in tools:
        return _open_iptables(facts, addresses, port)
    return _open_nftables(facts, addresses, port)


def open_windows(facts: Facts, addresses: Sequence[str], port: int) -> Fix:
    """A rule for the Hyper-V firewall, which guards a mirrored WSL; the undo removes the rule by its name."""
    listed = ", ".join(f"'{address}'" for address in addresses)
    creator = f" -VMCreatorId '{WSL_VM_CREATOR}'"
    guards = facts.windows.guards if facts.windows else ()
    and_there = f"; {' and '.join(guards)} may have a firewall of its own: allow the same there" if guards else ""
    return powershell(
        facts,
        f"New-NetFirewallHyperVRule -Name 'potluck' -DisplayName 'Potluck peers' -Direction Inbound{creator} "
        f"-Protocol TCP -LocalPorts {port} -RemoteAddresses {listed} -Action Allow",
        note=f"for these peers only{and_there}",
        admin=True,
        undo=["Remove-NetFirewallHyperVRule -Name 'potluck'"],
    )


def _open_around(facts: Facts, addresses: Sequence[str], port: int) -> Fix:
    """A container cannot see or change the firewall that guards it: that is the one of its computer."""
    rules = " && ".join(f"sudo ufw allow from {address} to any port {port} proto tcp" for address in addresses)
    publish = f"{facts.system.container} run --publish {port}:{port} ..."
    return by_hand(
        facts.machine,
        f"on the computer that runs this container, not inside the container: publish the port ({publish}), or with "
        f"--network=host open it in the computer's firewall: {rules}",
    )


def _open_ufw(facts: Facts, addresses: Sequence[str], port: int) -> Fix:
    rules = [f"allow from {address} to any port {port} proto tcp" for address in addresses]
    return bash(
        facts,
        *(f"ufw {rule}" for rule in rules),
        note="for these peers only",
        root=True,
        undo=[f"ufw delete {rule}" for rule in rules],
    )


def _open_firewalld(facts: Facts, addresses: Sequence[str], port: int) -> Fix:

    def rule(verb: str, address: str) -> str:
        accept = f'rule family="ipv4" source address="{address}" port port="{port}" protocol="tcp" accept'
        return f"firewall-cmd --permanent --{verb}-rich-rule='{accept}'"

    return bash(
        facts,
        *(rule("add", address) for address in addresses),
        "firewall-cmd --reload",
        note="for these peers only",
        root=True,
        undo=[*(rule("remove", address) for address in addresses), "firewall-cmd --reload"],
    )


def _open_iptables(facts: Facts, addresses: Sequence[str], port: int) -> Fix:
    rules = [f"INPUT --source {a} --protocol tcp --dport {port} --jump ACCEPT" for a in addresses]
    return bash(
        facts,
        *(f"iptables --insert {rule}" for rule in rules),
        note="for these peers only, until the next start",
        root=True,
        undo=[f"iptables --delete {rule}" for rule in rules],
    )


def _open_nftables(facts: Facts, addresses: Sequence[str], port: int) -> Fix:
    chains = [chain for chain in facts.firewall.chains if chain.may_block and chain.hook == "input"]
    places = [f"{chain.family} {chain.table} {chain.name}" for chain in chains] or ["inet filter input"]
    listed = ", ".join(addresses)
    note = "for these peers only, until the next start; /etc/nftables.conf keeps it"
    if not chains:
        note = "if nft list ruleset shows another table and chain, use those"
    return insert_nft_rules(
        facts, places, f"ip saddr '{{ {listed} }}' tcp dport {port} accept comment potluck", note=note
    )


def insert_nft_rules(facts: Facts, places: Sequence[str], rule: str, *, note: str) -> Fix:
    """A fix that inserts a rule at the head of each chain; the undo finds the rule by its comment."""
    fix = bash(facts, *(f"nft insert rule {place} {rule}" for place in places), note=note, root=True)
    nft = "nft" if facts.system.is_administrator else "sudo nft"  # on both sides of the pipe
    undo = [
        f"{nft} --handle list chain {place} | awk '/comment \"potluck\"/ {{ print $NF }}' "
        f"| xargs --no-run-if-empty --max-args=1 {nft} delete rule {place} handle"
        for place in places
    ]
    return msgspec.structs.replace(fix, undo=tuple(undo))
