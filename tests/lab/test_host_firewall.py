"""A host whose own firewall keeps others out names the rule before anybody joins; typed, the rule lets them in."""

import signal

import pytest

from benchmarks.support.gathering import Gathering

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(240)]
PAIR = "machines:\n" + "".join(
    f"  - {{name: {name}, cores: 0.9, memory: 2G, resolves: false}}\n" for name in ("rosa", "lily")
)
CLOSED = """
table inet filter {
  chain input {
    type filter hook input priority 0; policy drop;
    ct state vmap { established : accept, related : accept, invalid : drop }
    iifname "lo" accept
    meta l4proto icmp accept
    tcp dport 22 accept
  }
}
"""


def test_the_host_prints_the_rule_that_lets_its_network_in_and_is_silent_when_it_is_open(tmp_path):
    (tmp_path / "closed.nft").write_text(CLOSED)
    with Gathering(tmp_path, PAIR) as gathering:
        rosa = gathering.lab["rosa"]
        open_host = gathering.host("--not-here")
        assert "firewall" not in open_host.output
        open_host.send_signal(signal.SIGINT)
        open_host.wait(30)

        assert rosa.run(["nft", "-f", str(tmp_path / "closed.nft")]).returncode == 0
        host = gathering.host("--not-here")
        before, _, _ = host.output.partition("potluck join p1-")
        assert "the firewall here (nftables) keeps other machines out of port 29500." in before
        assert "To let in those of 10.77.0.0/24, type here:" in before
        command = next(line.strip() for line in before.splitlines() if "nft insert rule" in line)
        assert "ip saddr '{ 10.77.0.0/24 }' tcp dport 29500 accept" in command  # for its own network only
        assert rosa.run(["bash", "-c", command]).returncode == 0
        gathering.join("lily")
        assert gathering.states()["lily"] == "here"
        host.send_signal(signal.SIGINT)
        host.wait(30)

        again = gathering.host("--not-here")
        assert "firewall" not in again.output  # the rule is there
