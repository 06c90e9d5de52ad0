"""potluck join: make this machine one of the host's."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from potluck.cli.joining import StatusLine
    from potluck.gates.process import GateProcess
    from potluck.meeting.home import Home, HostMembership


def join(
    line: Annotated[
        str | None,
        typer.Argument(
            help="The line that potluck host prints; '-' reads it from stdin. Without a line, join takes the one of "
            "the variable POTLUCK_JOIN, or looks for the host that this machine knows, then for hosts on this network."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="This machine's name; POTLUCK_NAME or its hostname by default.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(help="What trains here: a number, or cuda:0,cpu. All accelerators by default.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each worker here.", min=1)] = None,
    port: Annotated[
        int | None,
        typer.Option(help="This machine's one port, which other machines dial; 29500 or the next free one.", min=1024),
    ] = None,
    service: Annotated[
        bool, typer.Option("--service", help="Join, and stay joined by systemd, also after a reboot.")
    ] = False,
) -> None:
    """Join a host and train whatever is started there. Ctrl-C leaves after the current step."""
    from contextlib import ExitStack, closing, nullcontext

    from potluck.cli import service_units
    from potluck.cli.joining import StatusLine, find_invitation
    from potluck.cli.looking import look_here
    from potluck.core.environment import DEFAULT_PORT, read_environment, take_join_line
    from potluck.gates.identity import load_or_make
    from potluck.gates.loopback import check_takes
    from potluck.gates.process import GateProcess
    from potluck.machine.device_list import read_devices
    from potluck.meeting.access.gating import bind_gate
    from potluck.meeting.client.joining import changed_versions, check_known, come_back
    from potluck.meeting.client.joining import join as join_host
    from potluck.meeting.client.returning import host_of_now, served_by_a_successor
    from potluck.meeting.home import Home

    environment = read_environment()
    chosen = read_devices(devices) if devices else None
    home, line_of_variable = Home(environment.home), take_join_line()
    home.check_hosts_nothing()
    replaced = service_units.replacing(service_units.JOIN, "potluck join") if service else nullcontext()
    with replaced:
        with home.only_agent(), StatusLine() as status, ExitStack() as stack:
            check_takes()
            invitation = find_invitation(line, home, status.tell, line_of_variable)
            membership = home.membership() if invitation is None else None
            is_let_in = membership is None or membership.is_of_own_host or come_back(membership)
            seen = look_here(status.tell)
            identity = load_or_make(home.identity_dir)
            check_known(identity, membership)
            for warning in changed_versions(seen, membership):
                status.tell(warning)
            listener = stack.enter_context(bind_gate(port or DEFAULT_PORT, is_fixed=port is not None))
            gate = stack.enter_context(closing(GateProcess(home.identity_dir, [listener], status.tell)))
            if invitation is not None:
                machine = name or environment.machine
                membership = join_host(
                    invitation, machine, home, seen, identity=identity, gate_port=gate.port, tell=status.tell
                )
                is_invited = membership.fingerprint == invitation.fingerprint.hex()
                is_let_in = is_invited or membership.is_of_own_host or come_back(membership)
            assert membership is not None
            if not is_let_in and (followed := served_by_a_successor(home, membership)) is not None:
                membership, is_let_in = followed, True
            if membership.is_of_own_host:
                membership = host_of_now(home, membership, gate, identity)
            status.tell(_joined_line(membership, is_let_in=is_let_in))
            if gate.port != DEFAULT_PORT and port is None:
                status.tell(f"port {DEFAULT_PORT} is taken here: others dial this machine at port {gate.port}")
            if not service:
                _work(home, membership, gate, chosen, threads, status)
        if service:
            words = service_units.as_words({"--devices": devices, "--threads": threads, "--port": port})
            service_units.install(service_units.JOIN, ["join", *words], home)


def _joined_line(membership: "HostMembership", *, is_let_in: bool) -> str:
    if membership.is_of_own_host:
        return "no other machine has taken this machine's place: it is the host again"
    where = f"{membership.host} ({membership.address}) as {membership.machine}"
    if is_let_in:
        return f"joined {where}"
    return (
        f"waiting for {where}: it does not answer yet\n"
        "  if another machine is the host by now: on that one: cat ~/.potluck/host/invitation.txt; then here: "
        "potluck join p1-..., with that line"
    )


def _work(
    home: "Home",
    membership: "HostMembership",
    gate: "GateProcess",
    devices: list[str] | None,
    threads: int | None,
    status: "StatusLine",
) -> None:
    """Follow the host's orders until this machine leaves or is sent away."""
    import signal

    from potluck.cli.service_units import JOIN
    from potluck.meeting.agent.agent import Agent

    gate.start()
    agent = Agent(
        home,
        membership,
        gate=gate,
        serves=True,
        devices=devices,
        threads=threads,
        tell=status.tell,
        show=status.show,
    )

    def leave(number: int, _: object) -> None:
        status.tell("leaving after the step; Ctrl-C again ends at once")
        signal.signal(number, before)
        agent.leave()

    before = signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGTERM, leave)
    agent.run()
    if agent.was_sent_away:
        home.forget(sent_away_by=membership)
        if JOIN.file.exists():  # at the next reboot it would be refused, and try again without end
            JOIN.disable()
        status.tell(
            f"{membership.host} has sent this machine away; to come back, paste the line that potluck host "
            "prints there: potluck join p1-..."
        )
    else:
        status.tell(f"left {membership.host}; come back with: potluck join")
