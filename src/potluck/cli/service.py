"""potluck service: what --service made of a host or a joined machine."""

from typing import Annotated

import typer

from potluck.cli.saying import say


def service(
    remove: Annotated[bool, typer.Option("--remove", help="Stop the service and delete its unit file.")] = False,
) -> None:
    """Show the service that potluck host --service or potluck join --service made here, or remove it."""
    from potluck.cli.service_units import installed, show
    from potluck.core.environment import read_environment
    from potluck.core.errors import ServiceError
    from potluck.machine.systemd import check_manager
    from potluck.meeting.home import Home

    home = Home(read_environment().home)
    units = installed()
    if not units:
        raise ServiceError(
            "this user has no service of Potluck here",
            fix="make one: potluck host --service, or potluck join --service with the line that a host prints",
        )
    check_manager("potluck host")
    for unit in units:
        if remove:
            unit.remove()
            home.invitation_file.unlink(missing_ok=True)
            say(f"{unit.name} is stopped and removed; keys and membership stay in {home.folder}")
        else:
            show(unit, home)
