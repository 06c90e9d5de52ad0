"""Several gates at once, in one process: who dials whom, who is let in, and who is cut off."""

import asyncio
import socket
from contextlib import asynccontextmanager, suppress

import pytest

from potluck.gates.bridge import WELCOME
from potluck.gates.gate import Gate
from potluck.gates.identity import load_or_make
from potluck.gates.links import BROKEN
from potluck.gates.loopback import address_of, choose_block, host_address, lighthouse_address
from potluck.gates.messages import ClusterMachine, Control, Electorate, Expose, Letter, Note, Open, Ports, Settings
from potluck.gates.ways import dial

NAMES = ("host", "ann", "bob")


@pytest.fixture(scope="module")
def identities(tmp_path_factory):
    return {name: load_or_make(tmp_path_factory.mktemp(name)) for name in NAMES}


class Cluster:
    """Gates that know each other; `blind` pairs have no address to dial each other at."""

    def __init__(self, identities, blind=()):
        self.identities = identities
        self.blind = {frozenset(pair) for pair in blind}
        self.block = choose_block()
        self.listeners = {name: socket.create_server(("127.0.0.1", 0), backlog=512) for name in NAMES}
        self.members = list(NAMES)
        self.runs = {"run": NAMES}
        self.gates, self.tasks, self.servers = {}, {}, []
        for name in NAMES:
            self.start(name)

    def start(self, name):
        listener = self.listeners[name].dup()
        self.servers.append(listener)
        gate = Gate(self.identities[name], [listener], lambda: None)
        gate._place = name  # or they would find that they share a loopback interface
        self.gates[name] = gate
        self.tasks[name] = asyncio.ensure_future(gate.listen())

    def member(self, name, seen_by):
        is_blind = frozenset((name, seen_by)) in self.blind
        port = 9 if is_blind else self.listeners[name].getsockname()[1]
        number = NAMES.index(name) + 1
        certificate = self.identities[name].certificate
        return ClusterMachine(machine=name, number=number, certificate=certificate, addresses=("127.0.0.1",), port=port)

    def tell(self, *names):
        for name in names or NAMES:
            members = tuple(self.member(one, name) for one in self.members)
            settings = Settings(machine=name, host="host", block=self.block, members=members, runs=self.runs)
            self.gates[name].update(settings)

    async def until(self, condition, at_most_s=5.0):
        deadline = asyncio.get_running_loop().time() + at_most_s
        while not condition():
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)

    def ways(self, name):
        return {link.machine: link.way for link in self.gates[name].links().links}

    async def serve_echo(self, name):
        """A worker's port of the run, which sends back what it gets."""

        async def echo(reader, writer):
            while content := await reader.read(4096):
                writer.write(content)
            writer.close()

        address = address_of(self.block, NAMES.index(name) + 1)
        server = await asyncio.start_server(echo, address, 0)
        self.servers.append(server)
        port = server.sockets[0].getsockname()[1]
        await self.gates[name].ports.expose(1, Expose(run="run", ports={port: "bulk"}, waits=False))
        return port


@asynccontextmanager
async def cluster_of(identities, **options):
    cluster = Cluster(identities, **options)
    try:
        yield cluster
    finally:
        for task in cluster.tasks.values():
            task.cancel()
        await asyncio.gather(*cluster.tasks.values(), return_exceptions=True)
        for closing in (*cluster.listeners.values(), *cluster.servers):
            closing.close()
        await asyncio.sleep(0.05)


async def read(end, size):
    return await asyncio.wait_for(end._read_exactly(size), 3)


def test_gates_that_dial_each_other_at_the_same_moment_agree_on_one_link(identities):
    async def run():
        async with cluster_of(identities) as cluster:
            changes = []
            gate = cluster.gates["ann"]
            original = gate._link_changed
            gate._link_changed = lambda link: (changes.append(link.machine), original(link))
            cluster.tell()
            await cluster.until(lambda: set(cluster.ways("ann").values()) == {"direct"})
            await asyncio.sleep(1.0)
            assert set(cluster.ways("ann").values()) == {"direct"}
            assert len(changes) <= 8, changes

    asyncio.run(run())


def test_both_ends_of_a_link_send_letters_before_gradients(identities):
    async def run():
        async with cluster_of(identities) as cluster:
            cluster.tell()
            await cluster.until(lambda: all(set(cluster.ways(name).values()) == {"direct"} for name in NAMES))
            await asyncio.sleep(1.0)  # gates that dialled each other at the same moment have agreed by then
            for gate in cluster.gates.values():
                for link in gate._links.values():
                    connection = link._held._end.socket
                    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == 6
                    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1

    asyncio.run(run())


def test_a_member_that_is_removed_gets_nothing_even_if_it_was_half_in(identities):
    async def run():
        async with cluster_of(identities) as cluster:
            cluster.tell()
            port = await cluster.serve_echo("ann")
            end = await dial(identities["bob"], cluster.member("ann", "bob"), ["127.0.0.1"], "bulk")
            await asyncio.sleep(0.1)
            cluster.members.remove("bob")  # the run's list may still name it
            cluster.tell("host", "ann")
            with pytest.raises(BROKEN):
                await end.send(Open(run="run", port=port))
                assert await read(end, 1) != WELCOME
                raise ConnectionResetError
            end.close()

    asyncio.run(run())


def test_a_relayed_connection_ends_when_its_origin_is_removed(identities):
    async def run():
        async with cluster_of(identities, blind=[("ann", "bob")]) as cluster:
            cluster.tell()
            await cluster.until(lambda: cluster.ways("bob")["host"] == cluster.ways("ann")["host"] == "direct")
            port = await cluster.serve_echo("ann")
            end = await dial(identities["bob"], cluster.member("host", "bob"), ["127.0.0.1"], "bulk")
            await end.send(Open(run="run", port=port, to="ann"))
            assert await read(end, 1) == WELCOME
            await end.send_plain(b"before")
            assert await read(end, 6) == b"before"
            cluster.members.remove("bob")
            cluster.tell("host", "ann")
            with pytest.raises(BROKEN):
                await end.send_plain(b"after")
                await read(end, 5)
            end.close()

    asyncio.run(run())


def test_a_gate_that_starts_again_hears_of_ports_through_the_host(identities):
    async def run():
        async with cluster_of(identities, blind=[("ann", "bob")]) as cluster:
            cluster.tell()
            await cluster.until(lambda: cluster.ways("bob")["host"] == "direct")
            port = await cluster.serve_echo("ann")
            await cluster.until(lambda: port in known_ports(cluster.gates["bob"]))
            cluster.tasks["bob"].cancel()
            await asyncio.gather(cluster.tasks["bob"], return_exceptions=True)
            cluster.start("bob")
            cluster.tell("bob")
            await cluster.until(lambda: port in known_ports(cluster.gates["bob"]))

    asyncio.run(run())


def known_ports(gate):
    """Of ann's; on one loopback interface nobody can stand in for another's open port."""
    told = gate.ports.announced.get("ann")
    return {port for ports in told.runs.values() for port in ports} if told else set()


@pytest.mark.parametrize("ports", [{70000: "bulk"}, {22: "bulk"}, dict.fromkeys(range(20000, 21000), "bulk")])
def test_a_letter_that_asks_for_impossible_ports_disturbs_nobody(identities, ports):
    async def run():
        async with cluster_of(identities) as cluster:
            cluster.tell("host", "ann")
            await cluster.until(lambda: cluster.ways("host").get("ann") == "direct")
            end = await dial(identities["bob"], cluster.member("host", "bob"), ["127.0.0.1"], "control")
            await end.send(Control(place="elsewhere"))
            await end.send(Letter(sender="bob", to="host", body=Ports(version=1, runs={"run": ports})))
            await asyncio.sleep(0.3)
            assert "bob" not in cluster.gates["host"].ports.announced
            end.close()
            cluster.runs = {"run": NAMES, "another": NAMES}
            cluster.tell("host")
            assert cluster.ways("host")["ann"] == "direct"

    asyncio.run(run())


def test_a_note_comes_over_the_link_of_its_sender_only_and_several_readers_get_it(identities):
    async def run():
        async with cluster_of(identities) as cluster:
            cluster.tell()
            await cluster.until(lambda: set(cluster.ways("ann").values()) == {"direct"})
            await cluster.until(lambda: set(cluster.ways("host").values()) == {"direct"})
            await asyncio.sleep(1.0)  # of two links that were dialled at once, one stays
            assert cluster.gates["ann"].say("bob", "a vote of ann")
            # The host claims to bring a note of ann's.
            forged = Letter(sender="ann", to="bob", body=Note(text="a vote that ann never gave"))
            cluster.gates["host"]._links["bob"].send(forged)
            assert cluster.gates["host"].say("bob", "a word of the host")
            for _ in range(2):
                await cluster.until(lambda: cluster.gates["bob"].notes._last >= 2)
                heard = await cluster.gates["bob"].notes.after(0)
                assert sorted(heard.notes) == [("ann", "a vote of ann"), ("host", "a word of the host")]

    asyncio.run(run())


def test_a_lighthouse_is_dialled_at_the_hosts_address_on_every_machine_while_the_host_is_confirmed(identities):
    async def run():
        async with cluster_of(identities) as cluster:
            voters = Electorate(voters=NAMES, tie_breaker="host")

            def tell():
                for name in NAMES:
                    members = tuple(cluster.member(one, name) for one in cluster.members)
                    cluster.gates[name].update(
                        Settings(
                            machine=name,
                            host="host",
                            block=cluster.block,
                            members=members,
                            runs=cluster.runs,
                            term=1,
                            electorates=(voters,),
                        )
                    )

            tell()
            gate = cluster.gates["host"]
            await cluster.until(lambda: gate.lease.is_valid)

            async def echo(reader, writer):
                while content := await reader.read(4096):
                    writer.write(content)
                writer.close()

            server = await asyncio.start_server(echo, lighthouse_address(cluster.block), 0)
            cluster.servers.append(server)
            port = server.sockets[0].getsockname()[1]
            await gate.ports.expose(1, Expose(run="run", ports={port: "host"}, waits=False))
            # One loopback interface: only the first gate gets the address, and any of them leads to the host.
            reader, writer = await asyncio.open_connection(host_address(cluster.block), port)
            writer.write(b"quorum?")
            assert await asyncio.wait_for(reader.read(100), 3) == b"quorum?"
            for name in NAMES[1:]:  # they promise their votes for a newer term, and confirm this host no more
                cluster.gates[name].lease._promised = 2
            await cluster.until(lambda: not gate.lease.is_valid)
            writer.write(b"and now?")
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(100), 3) == b""
            writer.close()

    asyncio.run(run())
