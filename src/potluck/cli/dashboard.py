"""potluck dashboard: runs in a browser."""

from pathlib import Path
from typing import Annotated

import typer


def dashboard(
    folder: Annotated[Path | None, typer.Argument(help="Where the runs are; ./experiments by default.")] = None,
    address: Annotated[
        str, typer.Option("--address", help="Where it listens; 0.0.0.0 lets other machines look, with a password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8501,
) -> None:
    """Show runs in a browser, while they train and after. Ctrl-C ends it."""
    from potluck.core.environment import read_dashboard_password, read_environment
    from potluck.dashboard.launching import addresses_elsewhere, plan_service, serve
    from potluck.doctor.examination import is_on_bridge
    from potluck.machine.snapshot import read_system
    from potluck.meeting.access.networks import best_first, read_interfaces
    from potluck.meeting.access.token import dashboard_password, kept_token
    from potluck.meeting.home import Home

    token = kept_token(Home(read_environment().home).host_dir)
    of_host = None if token is None else dashboard_password(token)
    served = plan_service(address, port, read_dashboard_password(), of_host)
    runs_dir = folder or read_environment().runs_dir
    print(f"starting the dashboard of the runs in {runs_dir.absolute()}", flush=True)
    reachable = [one.address for one in best_first(read_interfaces())]
    if is_on_bridge(read_system(), reachable):
        print(f"in a browser: at the address and port where this container's port {port} is published", flush=True)
        reachable = []
    for place in addresses_elsewhere(address, reachable):
        print(f"from other machines: http://{place}:{port}", flush=True)
    if served.password is not None:
        print(f"password: {served.password}", flush=True)
        print("the page is plain HTTP: use it on a network that you trust", flush=True)
    serve(served, runs_dir)
