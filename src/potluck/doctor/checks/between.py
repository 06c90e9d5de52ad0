"""What one machine sees of another: blocked ports, lost packets, slow links."""

from collections.abc import Iterable, Iterator

from potluck.doctor.case import (
    OPEN,
    REFUSED,
    SILENT,
    STALLED,
    STRANGER,
    UNREACHABLE,
    Examination,
    Link,
    training_interface,
)
from potluck.doctor.check import ClusterCheck, Verdict, fail, unknown, warn
from potluck.doctor.finding import Fix, bash, by_hand
from potluck.doctor.opening import insert_nft_rules, open_for, open_windows
from potluck.machine.facts import WIRELESS, Facts

_SLOW_BYTES_PER_S = 100e6 / 8  # a hundred megabits
_SMALL_MODEL_BYTES = 100e6  # gradients of a model like ResNet-50, where the user's own are not known
_MIXED_CLOCKS_S = 5.0


def high_ports(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Ports where the target listens, and the packets are dropped or rejected on the way."""
    for target, links in _blocked(seen, (SILENT, REFUSED)).items():
        facts = seen.facts(target)
        if facts is None or _is_mirrored(facts) or all(_one_port_only(link) for link in links):
            continue
        yield from _name_the_wall(seen, facts, links)
    for target, links in _blocked(seen, (STRANGER,)).items():
        yield (
            target,
            fail(
                f"something else than {target} answers {_sources(links)} at {links[0].address}",
                by_hand(target, "give every machine an address of its own, with no proxy or forwarded port in between"),
            ),
        )


def no_route(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """'No route to host' from a machine that is there: a firewall that rejects, or Wi-Fi client isolation."""
    for target, links in _blocked(seen, (UNREACHABLE,)).items():
        facts = seen.facts(target)
        if facts is None:
            continue
        isolation = (
            by_hand(target, "if no firewall runs there: use a cable, or switch off client isolation in the router"),
        )
        names = _sources(links)
        interfaces = [training_interface(one, seen.plan) for one in (facts, *_facts_of(seen, links))]
        if any(one is not None and one.kind == WIRELESS for one in interfaces):
            what = f"{names} get 'No route to host' from {target} over Wi-Fi: the router keeps its guests apart"
            yield target, fail(what, *isolation, open_for(facts, _addresses(seen, links)))
        else:
            what = f"{names} get 'No route to host' from {target}, which is there: its firewall rejects them"
            yield target, fail(what, open_for(facts, _addresses(seen, links)), *isolation)


def mirrored_inbound(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Mirrored WSL sits behind the Hyper-V firewall, which lets nobody in."""
    for target, links in _blocked(seen, (SILENT, REFUSED)).items():
        facts = seen.facts(target)
        if facts is None or not _is_mirrored(facts) or all(_one_port_only(link) for link in links):
            continue
        yield (
            target,
            fail(
                f"{_sources(links)} cannot dial into WSL on {target}: Windows' Hyper-V firewall keeps them out",
                open_windows(facts, _addresses(seen, links)),
                why=f"WSL is in mirrored mode and dials out well, but nobody can dial {target}",
            ),
        )


def mirrored_port(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Windows keeps some ports for itself, and a mirrored WSL does not get them."""
    for target, links in _blocked(seen, (SILENT, REFUSED)).items():
        facts = seen.facts(target)
        if facts is None or facts.wsl is None or not all(_one_port_only(link) for link in links):
            continue
        port = next(port for port, outcome in links[0].ports.items() if outcome != OPEN)
        yield (
            target,
            fail(
                f"port {port} of WSL on {target} cannot be reached, others can: Windows keeps it",
                bash(facts, f"export MASTER_PORT={port + 1000}", note="on every machine"),
            ),
        )


def lost_packets(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Small packets pass and large ones vanish: connections work, collectives hang."""
    lossy = [
        link
        for link in seen.links
        if link.mtu_wanted is not None and link.mtu_passed is not None and link.mtu_passed < link.mtu_wanted
    ]
    for machine in _ends_of(seen, lossy):
        facts = seen.facts(machine)
        interface = None if facts is None else training_interface(facts, seen.plan)
        if facts is None or interface is None:
            continue
        links = [link for link in lossy if machine in (link.source, link.target)]
        others = sorted({link.target if link.source == machine else link.source for link in links})
        wanted = max(link.mtu_wanted or 0 for link in links)
        passed = min(link.mtu_passed or 0 for link in links)
        yield (
            machine,
            fail(
                f"packets of {wanted} bytes between {machine} and {' and '.join(others)} are lost; {passed} bytes pass",
                bash(
                    facts,
                    f"ip link set dev {interface.name} mtu {passed}",
                    note="until the next start",
                    root=True,
                    undo=[f"ip link set dev {interface.name} mtu {interface.mtu or wanted}"],
                ),
                why="ping and ssh work with small packets, collectives hang with large ones",
            ),
        )


def slow(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """A link on which the exchange takes longer than most steps."""
    machines = [facts.machine for facts in seen.machines]
    for machine in machines:
        rates = [link.bytes_per_s for link in seen.links if machine in (link.source, link.target) and link.bytes_per_s]
        # All of a machine's links being slow is its own cable; one slow pair is the other's.
        if not rates or max(rates) >= _SLOW_BYTES_PER_S:
            continue
        num = max(2, len(machines))
        gradient = seen.plan.gradient_bytes or _SMALL_MODEL_BYTES
        seconds = 2 * (num - 1) / num * gradient / max(rates)
        yield (
            machine,
            warn(
                f"{machine} moves {8 * max(rates) / 1e6:.0f} Mbit/s: {gradient / 1e6:.0f} MB of gradients take "
                f"{seconds:.1f} s a step between {num} machines",
                by_hand(machine, "use a gigabit cable, a larger global batch, or train without this machine"),
                why="2 (n - 1) / n of the gradients cross the slowest link at every step",
            ),
        )


def clocks(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Potluck does not depend on clocks; who compares two machines' logs does."""
    offsets: dict[str, list[float]] = {facts.machine: [] for facts in seen.machines}
    for link in seen.links:
        if link.clock_offset_s is not None and link.target in offsets and link.source in offsets:
            offsets[link.target].append(link.clock_offset_s)
            offsets[link.source].append(-link.clock_offset_s)
    # The machine that is off is off against most of the others.
    for machine, mine in offsets.items():
        wrong = sorted(one for one in mine if abs(one) > _MIXED_CLOCKS_S)
        facts = seen.facts(machine)
        if facts is None or 2 * len(wrong) <= len(mine) or (len(offsets) == 2 and seen.machines[0].machine == machine):
            continue
        offset = wrong[len(wrong) // 2]
        yield (
            machine,
            warn(
                f"the clock of {machine} is {abs(offset):.0f} s {'ahead' if offset > 0 else 'behind'}",
                _set_clock(facts),
            ),
        )


def silent_peer(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Machines that gave no answer at all."""
    for machine, absence in seen.absent.items():
        usual = "see that it is switched on, awake and plugged in, and start potluck there again"
        yield (
            machine,
            fail(
                f"{machine} gives no answer: {absence.why}",
                by_hand(machine, absence.fix or usual),
            ),
        )


def all_reduce(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """The real thing, small: every machine's number is added up on all of them."""
    if seen.reductions is None:
        if any(not link.is_open for link in seen.links):
            yield "all", unknown("the all-reduce was not tried, since machines cannot reach each other")
        return
    names = {facts.machine for facts in seen.machines}
    for one in seen.reductions:
        if one.error:
            yield (
                one.machine,
                fail(
                    f"the all-reduce fails on {one.machine}: {one.error}",
                    by_hand(one.machine, "mend what the other checks name first; then: potluck explain < its output"),
                ),
            )
        elif not one.is_sum_right or set(one.names) != names:
            yield (
                one.machine,
                fail(
                    f"the all-reduce gives a wrong sum on {one.machine}, with {', '.join(one.names)}",
                    by_hand(one.machine, "reboot it and test its memory; a sum of small integers has one answer"),
                ),
            )


def _ends_of(seen: Examination, links: list[Link]) -> list[str]:
    """Where to mend bad links: at the one machine that all have in common while others are well, else at each start."""
    common = set.intersection(*({link.source, link.target} for link in links)) if links else set()
    if len(common) == 1 and len(seen.machines) > 2:
        return sorted(common)
    return list(dict.fromkeys(link.source for link in links))


def _blocked(seen: Examination, outcomes: Iterable[str]) -> dict[str, list[Link]]:
    """Links with such an outcome on some port, by target."""
    found: dict[str, list[Link]] = {}
    for link in seen.links:
        if any(outcome in outcomes for outcome in link.ports.values()):
            found.setdefault(link.target, []).append(link)
    return found


def _name_the_wall(seen: Examination, facts: Facts, links: list[Link]) -> Iterator[tuple[str, Verdict]]:
    """Usually the target's firewall; the source's, if only that one has rules for what goes out."""
    culprits = [one for one in _facts_of(seen, links) if _blocks_out(one) and not _blocks_in(facts)]
    for source in culprits:
        yield (
            source.machine,
            fail(f"{source.machine} lets nothing out to the high ports of {facts.machine}", _let_out(source, links)),
        )
    rest = [link for link in links if link.source not in {one.machine for one in culprits}]
    if not rest:
        return
    back = {link.source for link in seen.links if link.target == facts.machine and link.is_open}
    how = "rejects" if all(REFUSED in link.ports.values() for link in rest) else "drops"
    both = [
        link.source
        for link in rest
        if any(
            other.source == facts.machine and other.target == link.source and not other.is_open for other in seen.links
        )
    ]
    direction = " (and the other way round)" if both else ""
    others = f"; {', '.join(sorted(back))} can" if back else ""
    yield (
        facts.machine,
        fail(
            f"the firewall of {facts.machine} {how} connections from {_sources(rest)} to high ports{direction}{others}",
            open_for(facts, _addresses(seen, rest)),
            why="Gloo and NCCL listen on random high ports, and have no option for a range",
        ),
    )


def _blocks_in(facts: Facts) -> bool:
    chains = facts.firewall.chains
    return any(chain.may_block and chain.hook == "input" for chain in chains) or not facts.firewall.is_readable


def _blocks_out(facts: Facts) -> bool:
    return any(chain.may_block and chain.hook == "output" for chain in facts.firewall.chains)


def _let_out(facts: Facts, links: list[Link]) -> Fix:
    chain = next(chain for chain in facts.firewall.chains if chain.may_block and chain.hook == "output")
    place = f"{chain.family} {chain.table} {chain.name}"
    targets = ", ".join(sorted({link.address for link in links if link.source == facts.machine}))
    rule = f"ip daddr '{{ {targets} }}' tcp dport 1024-65535 accept comment potluck"
    return insert_nft_rules(facts, [place], rule, note="for these peers only, until the next start")


def _one_port_only(link: Link) -> bool:
    """Whether a single port is closed while others of the same machine are open."""
    outcomes = list(link.ports.values())
    return sum(outcome in (OPEN, STALLED) for outcome in outcomes) == len(outcomes) - 1 and len(outcomes) > 1


def _is_mirrored(facts: Facts) -> bool:
    return facts.wsl is not None and facts.wsl.mode == "mirrored"


def _sources(links: list[Link]) -> str:
    return " and ".join(sorted({link.source for link in links}))


def _facts_of(seen: Examination, links: list[Link]) -> list[Facts]:
    return [facts for link in links if (facts := seen.facts(link.source)) is not None]


def _addresses(seen: Examination, links: list[Link]) -> list[str]:
    return [seen.addresses[link.source] for link in links if link.source in seen.addresses]


def _set_clock(facts: Facts) -> Fix:
    if facts.wsl is not None:
        return by_hand(facts.machine, "in PowerShell on Windows: wsl --shutdown")
    return bash(facts, "systemctl restart systemd-timesyncd", note="or, with chrony: chronyc makestep", root=True)


BETWEEN = (
    ClusterCheck("ephemeral-ports", "high ports are blocked between machines", high_ports),
    ClusterCheck("no-route", "'No route to host' from a machine that is there", no_route),
    ClusterCheck("wsl-mirrored-inbound", "nobody can dial into a mirrored WSL", mirrored_inbound),
    ClusterCheck("wsl-mirrored-port", "one port of WSL is kept by Windows", mirrored_port),
    ClusterCheck("mtu", "large packets are lost on the way", lost_packets),
    ClusterCheck("slow-link", "a link on which the exchange takes long", slow),
    ClusterCheck("clock-skew", "clocks that differ by more than 5 s", clocks),
    ClusterCheck("peer-silent", "a machine that gives no answer", silent_peer),
    ClusterCheck("all-reduce", "the all-reduce over all machines fails", all_reduce),
)
