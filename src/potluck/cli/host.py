"""potluck host: the meeting point that other machines join."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.saying import warn

if TYPE_CHECKING:
    from potluck.cli.roster_display import RosterDisplay
    from potluck.meeting.home import Home
    from potluck.meeting.host.host import Host


def host(
    port: Annotated[int, typer.Option(help="The port that machines join at.", min=1, max=65535)] = 29500,
    address: Annotated[str | None, typer.Option(help="Listen at this address only.")] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            help="The address that other machines dial, if it is none of this machine's: that of a router which "
            "forwards the port, or of the computer that publishes a container's port."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="This machine's name; POTLUCK_NAME or its hostname by default.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(help="What trains here: a number, or cuda:0,cpu. All accelerators by default.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each worker here.", min=1)] = None,
    not_here: Annotated[bool, typer.Option("--not-here", help="Host only: this machine never trains.")] = False,
    no_mdns: Annotated[bool, typer.Option("--no-mdns", help="Don't announce this host on the network.")] = False,
    successor: Annotated[
        list[str] | None,
        typer.Option(
            help="A machine that takes this host's place when it is gone, and that may go on alone if the two are all "
            "there is; may be given again. By default, two of the machines do where more than half of all agree."
        ),
    ] = None,
    no_successor: Annotated[
        bool, typer.Option("--no-successor", help="No other machine may become the host: without it nothing goes on.")
    ] = False,
    service: Annotated[
        bool, typer.Option("--service", help="Keep the host running by systemd, also after a reboot.")
    ] = False,
    as_service: Annotated[bool, typer.Option("--as-service", hidden=True)] = False,
) -> None:
    """Hold the meeting point: print the line to paste on other machines, and show who is here."""
    import asyncio

    from potluck.cli import service_units
    from potluck.cli.looking import look_here
    from potluck.cli.roster_display import RosterDisplay
    from potluck.core.environment import read_environment
    from potluck.gates.loopback import check_takes
    from potluck.machine.device_list import read_devices
    from potluck.meeting.access.networks import check_ipv4
    from potluck.meeting.home import Home
    from potluck.meeting.host.host import Host, HostOptions
    from potluck.meeting.host.reign import SuccessionRule

    environment = read_environment()
    chosen = read_devices(devices) if devices else None
    home = Home(environment.home)
    advertised = None if advertise is None else check_ipv4(advertise)
    if service:
        flags = [*(["--not-here"] if not_here else []), *(["--no-mdns"] if no_mdns else []), "--as-service"]
        flags += [*(["--no-successor"] if no_successor else []), *(f"--successor={one}" for one in successor or [])]
        given = {"--address": address, "--advertise": advertise, "--name": name, "--devices": devices}
        words = service_units.as_words({"--port": port, **given, "--threads": threads})
        with service_units.replacing(service_units.HOST, "potluck host"):
            with home.only_host():
                home.check_joined_nowhere()
            service_units.install(service_units.HOST, ["host", *words, *flags], home)
        return
    options = HostOptions(
        machine=name or environment.machine,
        port=port,
        runs_dir=Path(environment.runs_dir),
        address=address,
        advertised=advertised,
        can_train=not not_here,
        devices=chosen,
        threads=threads,
        is_announced=not no_mdns,
        succession=SuccessionRule(named=tuple(successor or ()), is_off=no_successor),
    )

    async def serve() -> None:
        held = Host(home, options, seen)
        with RosterDisplay(held.status) as display:
            await held.serve(lambda: _opened(held, display, home, as_service=as_service), display.refresh)

    with home.only_host():
        home.check_joined_nowhere()
        check_takes()
        seen = look_here(warn, is_host=options.advertised is None)
        asyncio.run(serve())


def _opened(held: "Host", display: "RosterDisplay", home: "Home", *, as_service: bool) -> None:
    """Print what other machines need to join this one."""
    from potluck.cli.roster_display import invitation_texts
    from potluck.core.atomic import write_secret
    from potluck.meeting.access.invitation import spell_token

    display.name_obstacle(held.obstacles())
    lines = held.invitations()
    token = spell_token(lines[0][0].token)
    written = [(str(line), why) for line, why in lines]
    if as_service:  # a journal is no place for a line that lets machines in
        end = "potluck service --remove ends the host."
        texts = invitation_texts(held.machine, written, token, held.install_lines(), end=end)
        write_secret(home.invitation_file, "".join(f"{text.plain}\n" for text in texts))
        display.tell(f"{held.machine} is the host; the line to paste on other machines: potluck service")
    else:
        display.invite(held.machine, written, token, held.install_lines())
