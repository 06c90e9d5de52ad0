"""The verdict on a connection is the kernel's: rules are loaded by nft where this computer lets us, then judged."""

import json
import shutil
import subprocess

import pytest

from potluck.machine.firewall_port import judge_ufw
from potluck.machine.nft_verdict import ACCEPT, BLOCK, UNCLEAR, IncomingConnection, judge_connection

AT_HOME = IncomingConnection(network="10.77.0.0/24", port=29500, interface="eth0")
OPEN, CLOSED = "policy accept;", "policy drop;"


def in_namespace(script: str, text: str = "") -> subprocess.CompletedProcess:
    return subprocess.run(
        ["unshare", "-n", "sh", "-c", script], input=text, capture_output=True, text=True, check=False
    )


def can_load_rules() -> bool:
    return all(shutil.which(tool) for tool in ("nft", "unshare")) and in_namespace("nft list ruleset").returncode == 0


def load(policy: str, *rules: str, more: str = "") -> dict:
    """The ruleset as nft prints it after a kernel has taken it, in a network namespace of its own."""
    lines = "\n".join(rules)
    more = more.replace(";", "\n").replace("{", "{\n").replace("}", "\n}") if "chain" in more else more
    text = f"table inet t {{\n{more}\nchain input {{\ntype filter hook input priority 0; {policy}\n{lines}\n}}\n}}\n"
    done = in_namespace("nft -f - && nft --json list ruleset", text)
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    return json.loads(done.stdout)


@pytest.mark.skipif(not can_load_rules(), reason="needs root and nft")
@pytest.mark.parametrize(
    ("verdict", "policy", "rules", "more"),
    [
        (ACCEPT, OPEN, (), ""),
        (BLOCK, CLOSED, (), ""),
        (BLOCK, CLOSED, ('iifname "lo" accept', "ct state established,related accept", "tcp dport 22 accept"), ""),
        (ACCEPT, CLOSED, ("tcp dport 29500 accept",), ""),
        (ACCEPT, CLOSED, ("tcp dport { 22, 29000-30000 } counter accept",), ""),
        (ACCEPT, CLOSED, ("ip saddr 10.0.0.0/8 tcp dport 29500 accept",), ""),
        (BLOCK, CLOSED, ("ip saddr 192.168.0.0/16 accept", "meta l4proto { icmp, udp } accept"), ""),
        (UNCLEAR, CLOSED, ("ip saddr 10.77.0.7 tcp dport 29500 accept",), ""),
        (UNCLEAR, CLOSED, ("tcp dport 29500 limit rate 3/minute accept",), ""),
        (BLOCK, OPEN, ("tcp dport 1024-65535 reject",), ""),
        (BLOCK, OPEN, ("ip protocol tcp drop",), ""),
        (ACCEPT, OPEN, ("udp dport 29500 drop", "ip6 nexthdr tcp drop", "tcp dport != 29500 drop"), ""),
        (ACCEPT, CLOSED, ("ip saddr @home accept",), "set home { type ipv4_addr; flags interval; "
         "elements = { 10.77.0.0/24 } }"),
        (BLOCK, CLOSED, ("jump more",), "chain more { tcp dport 22 accept; ip saddr 10.0.0.0/8 return; accept; }"),
        (ACCEPT, CLOSED, ("goto more",), "chain more { meta nfproto ipv4 accept; }"),
        (BLOCK, OPEN, ("tcp dport vmap { 22 : accept, 29500 : drop }",), ""),
        (BLOCK, CLOSED, ("ct state vmap { invalid : drop, related : accept }", 'iifname { "lo", "wg" } accept'), ""),
        (ACCEPT, CLOSED, ('iifname "eth*" accept',), ""),
        (UNCLEAR, OPEN, ("meta mark 7 drop",), ""),
        (UNCLEAR, CLOSED, ("tcp flags & (fin | syn) == syn accept",), ""),
        (UNCLEAR, CLOSED, ("ip saddr . tcp dport @pairs accept",), "set pairs { type ipv4_addr . inet_service; "
         "elements = { 10.77.0.7 . 29500 } }"),
    ],
)  # fmt: skip
def test_a_ruleset_is_judged_as_the_kernel_walks_it(verdict, policy, rules, more):
    assert judge_connection(load(policy, *rules, more=more), AT_HOME) == verdict


@pytest.mark.skipif(not can_load_rules(), reason="needs root and nft")
def test_every_table_has_to_accept():
    ruleset = load(CLOSED, "tcp dport 29500 accept")
    other = load(OPEN, "tcp dport 29500 drop")
    renamed = json.loads(json.dumps(other["nftables"]).replace('"t"', '"other"'))
    assert judge_connection({"nftables": ruleset["nftables"] + renamed}, AT_HOME) == BLOCK


CLOSED_BY_DEFAULT = 'DEFAULT_INPUT_POLICY="DROP"\n'


@pytest.mark.parametrize(
    ("verdict", "rule"),
    [
        (ACCEPT, "allow tcp 29500 0.0.0.0/0 any 10.77.0.0/24 in"),  # what ufw --dry-run wrote for our own command
        (ACCEPT, "allow any 29500 0.0.0.0/0 any 0.0.0.0/0 in"),
        (ACCEPT, "limit tcp 29000:29999 0.0.0.0/0 any 0.0.0.0/0 in_eth0"),
        (UNCLEAR, "allow tcp 29500 0.0.0.0/0 any 10.77.0.9 in"),
        (BLOCK, "allow tcp 22,80 0.0.0.0/0 any 0.0.0.0/0 in"),
        (BLOCK, "allow udp 29500 0.0.0.0/0 any 0.0.0.0/0 in"),
        (BLOCK, "allow tcp 29500 0.0.0.0/0 any 0.0.0.0/0 in_wlan0"),
        (BLOCK, "allow tcp 29500 0.0.0.0/0 any 0.0.0.0/0 out"),
        (BLOCK, "deny tcp 29500 0.0.0.0/0 any 0.0.0.0/0 in"),
    ],
)
def test_rules_of_ufw_are_read_from_its_file(verdict, rule):
    assert judge_ufw(f"*filter\n### tuple ### {rule}\n-A x\n", CLOSED_BY_DEFAULT, AT_HOME) == verdict


def test_without_a_rule_the_policy_of_ufw_decides():
    assert judge_ufw("", CLOSED_BY_DEFAULT, AT_HOME) == BLOCK
    assert judge_ufw("", 'DEFAULT_INPUT_POLICY="ACCEPT"\n', AT_HOME) == ACCEPT
