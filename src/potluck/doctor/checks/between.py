"""Checks of the links between machines: closed gates, lost packets, slow links, clocks and the all-reduce."""

from collections.abc import Iterator

from potluck.core.environment import DEFAULT_PORT
from potluck.doctor.check import ClusterCheck, Verdict, fail, unknown, warn
from potluck.doctor.examination import (
    REFUSED,
    STRANGER,
    UNREACHABLE,
    DialledLink,
    Examination,
    Reduction,
    is_on_bridge,
    training_interface,
)
from potluck.doctor.finding import Fix, bash, by_hand
from potluck.doctor.firewall_fixes import insert_nft_rules, open_for
from potluck.machine.facts import WIRELESS, Facts, Interface

_SLOW_BYTES_PER_S = 100e6 / 8  # a hundred megabits
_SMALL_MODEL_BYTES = 100e6  # gradients of a model like ResNet-50, where the user's model is not known
_MIXED_CLOCKS_S = 5.0
_PASSES_EVERYWHERE = 1280  # bytes; the smallest MTU that IPv6 allows a network


def closed_gates(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Of every two machines, one must be able to dial the other's gate; otherwise the host must relay between them."""
    for one, other in _pairs(seen):
        if one.way == "relayed":
            yield from _open_one(seen, one, other, is_relayed=True)
        elif not one.is_open and not (other is not None and other.is_open):
            yield from _open_one(seen, one, other, is_relayed=False)


def lost_packets(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Links must not lose large packets: if only small packets pass, connections work and collectives hang."""
    lossy = [link for link in seen.links if link.loses_large_packets]
    for machine in _ends_of(seen, lossy):
        facts = seen.facts(machine)
        interface = None if facts is None else training_interface(facts, seen.plan)
        if facts is None or interface is None:
            continue
        links = [link for link in lossy if machine in (link.source, link.target)]
        others = sorted({link.target if link.source == machine else link.source for link in links})
        yield (
            machine,
            fail(
                f"large packets between {machine} and {' and '.join(others)} are lost, small ones pass",
                _send_smaller(facts, interface),
                why="ping and ssh work with small packets, training hangs with large ones",
            ),
        )


def slow(seen: Examination) -> Iterator[tuple[str, Verdict]]:
    """Machines whose fastest link is below 100 Mbit/s, where exchanging gradients takes longer than most steps."""
    machines = [facts.machine for facts in seen.machines]
    for machine in machines:
        rates = [link.bytes_per_s for link in seen.links if machine in (link.source, link.target) and link.bytes_per_s]
        # If all links of a machine are slow, its own cable is to blame; if only one is, the other machine's.
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
    """Clocks should agree: Potluck does not depend on them, but a user who compares two machines' logs does."""
    offsets: dict[str, list[float]] = {facts.machine: [] for facts in seen.machines}
    for link in seen.links:
        if link.clock_offset_s is not None and link.target in offsets and link.source in offsets:
            offsets[link.target].append(link.clock_offset_s)
            offsets[link.source].append(-link.clock_offset_s)
    # A wrong clock differs from the clocks of most other machines.
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
    """Every machine must answer the doctor."""
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
    """A small all-reduce over all machines must work, and give the right sum on each."""
    if seen.reductions is None:
        if any(not link.is_open for link in seen.links):
            yield "all", unknown("the all-reduce was not tried, since machines cannot reach each other")
        return
    names = {facts.machine for facts in seen.machines}
    for one in seen.reductions:
        if one.error:
            yield (
                one.machine,
                fail(f"the all-reduce{_by(one)} fails on {one.machine}: {one.error}", _mend(one)),
            )
        elif not one.is_sum_right or set(one.names) != names:
            yield (
                one.machine,
                fail(
                    f"the all-reduce{_by(one)} gives a wrong sum on {one.machine}, with {', '.join(one.names)}",
                    by_hand(one.machine, "reboot it and test its memory; a sum of small integers has one answer"),
                ),
            )


def _by(one: Reduction) -> str:
    return f" by NCCL on {one.device}" if one.backend == "nccl" else ""


def _mend(one: Reduction) -> Fix:
    if one.backend == "nccl":
        return by_hand(
            one.machine,
            "NCCL dials high ports past the gates: let the other machines in on ports 1024 to 65535, or train with "
            "--backend gloo, which works here; potluck doctor --check no-nccl names NCCL's variables",
        )
    return by_hand(one.machine, "mend what the other checks name first; then: potluck explain < its output")


def _ends_of(seen: Examination, links: list[DialledLink]) -> list[str]:
    """Where to fix bad links: at the machine that they all share, if there are more than two, else at each source."""
    common = set.intersection(*({link.source, link.target} for link in links)) if links else set()
    if len(common) == 1 and len(seen.machines) > 2:
        return sorted(common)
    return list(dict.fromkeys(link.source for link in links))


def _pairs(seen: Examination) -> list[tuple[DialledLink, DialledLink | None]]:
    """Every pair of machines once: a link, and the link in the other direction if that was tried."""
    links = {(link.source, link.target): link for link in seen.links}
    return [
        (link, links.get((target, source)))
        for (source, target), link in links.items()
        if source < target or (target, source) not in links
    ]


def _open_one(
    seen: Examination, one: DialledLink, other: DialledLink | None, *, is_relayed: bool
) -> Iterator[tuple[str, Verdict]]:
    """The verdict on one pair. Fixing one machine is enough; a machine whose firewall may block comes first."""
    dialled = [link for link in (one, other) if link is not None]
    ends = [facts for link in dialled if (facts := seen.facts(link.target)) is not None]
    if not ends:
        return
    ends.sort(key=lambda facts: (facts.machine in seen.translated, not _blocks_in(facts)))
    fixes = [_opening(seen, facts, [link.source for link in dialled if link.target == facts.machine]) for facts in ends]
    walled = [facts for link in dialled if (facts := seen.facts(link.source)) is not None and _blocks_out(facts)]
    if walled and not any(_blocks_in(facts) for facts in ends):
        fixes.insert(0, _let_out(seen, walled[0], [link.target for link in dialled]))
    names = f"{one.source} and {one.target}"
    if is_relayed:
        yield (
            fixes[0].machine,
            warn(
                f"{names} cannot dial each other: what they send goes through the host",
                *fixes,
                why="a relay takes the host's link twice",
            ),
        )
        return
    met = {link.outcome for link in dialled}
    if STRANGER in met:
        target = next(link.target for link in dialled if link.outcome == STRANGER)
        yield (
            target,
            fail(
                f"something else than {target} answers {_other(one, target)} at port {_port(seen, target)}",
                by_hand(target, "end that program, or choose another port: potluck host --port, potluck join --port"),
            ),
        )
        return
    what = f"neither of {names} can dial the other's port {_port(seen, one.target)}: {_met(met)}"
    interfaces = [training_interface(facts, seen.plan) for facts in ends]
    if UNREACHABLE in met and any(one is not None and one.kind == WIRELESS for one in interfaces):
        isolation = "take both off the guest network, switch off client isolation in the router, or use a cable"
        fixes.insert(0, by_hand(ends[0].machine, isolation))
    yield fixes[0].machine, fail(what, *fixes, why="one of the two must be able to dial the other, or a third hosts")


def _opening(seen: Examination, facts: Facts, sources: list[str]) -> Fix:
    port = _port(seen, facts.machine)
    if facts.machine in seen.translated:
        interface = training_interface(facts, seen.plan)
        own = interface.addresses[0].partition("/")[0] if interface and interface.addresses else facts.machine
        if facts.system.is_image_container:
            publish = f"{facts.system.container} run --publish {port}:{port} ..."
            return by_hand(facts.machine, f"on the computer that runs the container {facts.machine}: {publish}")
        where = f"at {seen.addresses[facts.machine]}, what {facts.machine} is behind"
        return by_hand(facts.machine, f"{where}: forward port {port} to {own}:{port}")
    return open_for(facts, [seen.addresses[name] for name in sources if name in seen.addresses], port)


def _port(seen: Examination, machine: str) -> int:
    return seen.ports.get(machine) or DEFAULT_PORT


def _other(link: DialledLink, machine: str) -> str:
    return link.source if link.target == machine else link.target


def _met(outcomes: set[str]) -> str:
    if UNREACHABLE in outcomes:
        return "no route to host"
    return "a firewall rejects it" if REFUSED in outcomes else "no answer, as when a firewall drops it"


def _blocks_in(facts: Facts) -> bool:
    chains = facts.firewall.chains
    return any(chain.may_block and chain.hook == "input" for chain in chains) or not facts.firewall.is_readable


def _blocks_out(facts: Facts) -> bool:
    return any(chain.may_block and chain.hook == "output" for chain in facts.firewall.chains)


def _let_out(seen: Examination, facts: Facts, targets: list[str]) -> Fix:
    chain = next(chain for chain in facts.firewall.chains if chain.may_block and chain.hook == "output")
    place = f"{chain.family} {chain.table} {chain.name}"
    others = [name for name in targets if name != facts.machine]
    addresses = ", ".join(sorted(seen.addresses[name] for name in others if name in seen.addresses))
    rule = f"ip daddr '{{ {addresses} }}' tcp dport {_port(seen, others[0])} accept comment potluck"
    return insert_nft_rules(facts, [place], rule, note="for these peers only, until the next start")


def _send_smaller(facts: Facts, interface: Interface) -> Fix:
    if is_on_bridge(facts.system, facts.addresses):  # a container may not change its interface
        bridge = (
            f"{facts.system.container} network create --opt com.docker.network.driver.mtu={_PASSES_EVERYWHERE} small"
        )
        return by_hand(facts.machine, f"on the computer around the container: {bridge}; then run with --network small")
    return bash(
        facts,
        f"ip link set dev {interface.name} mtu {_PASSES_EVERYWHERE}",
        note="until the next start",
        root=True,
        undo=[f"ip link set dev {interface.name} mtu {interface.mtu or 1500}"],
    )


def _set_clock(facts: Facts) -> Fix:
    if facts.wsl is not None:
        return by_hand(facts.machine, "in PowerShell on Windows: wsl --shutdown")
    if facts.system.is_image_container:
        return by_hand(facts.machine, "on the computer around the container: sudo timedatectl set-ntp true")
    return bash(facts, "systemctl restart systemd-timesyncd", note="or, with chrony: chronyc makestep", root=True)


BETWEEN = (
    ClusterCheck("gate-closed", "neither of two machines can dial the other's port", closed_gates),
    ClusterCheck("mtu", "large packets are lost on the way", lost_packets),
    ClusterCheck("slow-link", "a link on which the exchange takes long", slow),
    ClusterCheck("clock-skew", "clocks that differ by more than 5 s", clocks),
    ClusterCheck("peer-silent", "a machine that gives no answer", silent_peer),
    ClusterCheck("all-reduce", "the all-reduce over all machines fails", all_reduce),
)
