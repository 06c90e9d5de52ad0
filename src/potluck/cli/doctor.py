"""potluck doctor: what is wrong on which machine, and what to type."""

from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.saying import say, warn

if TYPE_CHECKING:
    from potluck.doctor.examination import Examination, IntendedRun, Peer
    from potluck.doctor.finding import Finding

BETWEEN = "Between machines"
SCRIPTS = "Scripts"
_HOST_CHECKS = frozenset({"cannot-host", "antivirus-firewall"})  # whoever asks for these wants to host here


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all facts and findings, ready for a bug report; no tokens, no users.")
    ] = False,
    list_checks: Annotated[bool, typer.Option("--list", help="Name all checks.")] = False,
    check: Annotated[list[str] | None, typer.Option("--check", help="Run this check only; as often as needed.")] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show what is fine, too.")] = False,
    listen: Annotated[
        bool,
        typer.Option("--listen", help="Wait for another machine to examine the way between.", rich_help_panel=BETWEEN),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option("--port", help="The port for --listen or --fix-script (29500).", rich_help_panel=BETWEEN),
    ] = None,
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Examine all machines that have joined the host.", rich_help_panel=BETWEEN),
    ] = False,
    expect: Annotated[
        str | None,
        typer.Option(
            "--expect", help="Machines that must be there, for --cluster: rosa,lily.", rich_help_panel=BETWEEN
        ),
    ] = None,
    reach: Annotated[
        list[str] | None,
        typer.Option(
            "--reach",
            help="Examine the connection to a machine where potluck doctor --listen runs: the text that it printed, or "
            "an address. May be given several times.",
            rich_help_panel=BETWEEN,
        ),
    ] = None,
    fix_script: Annotated[
        str | None,
        typer.Option(
            "--fix-script", help="Print a script for linux or windows that lets --peer in.", rich_help_panel=SCRIPTS
        ),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            "--peer", help="ADDRESS, NAME=ADDRESS or NETWORK/PREFIX; as often as needed.", rich_help_panel=SCRIPTS
        ),
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="The script that takes --fix-script back.", rich_help_panel=SCRIPTS)
    ] = False,
) -> None:
    """Say what is wrong on which machine, and what to type. Changes nothing; ends with 1 if training cannot work."""
    from potluck.core.environment import DEFAULT_PORT, read_environment
    from potluck.doctor.checks.catalogue import check_known, check_possible, examine_all, examine_machine, needs_torch
    from potluck.doctor.fix_script import parse_peer, write_fix_script

    _check_options(
        {"--list": list_checks, "--listen": listen, "--cluster": cluster, "--reach": reach, "--fix-script": fix_script},
        {
            "--port": (port is not None, ("--listen", "--fix-script")),
            "--expect": (expect, ("--cluster",)),
            "--undo": (undo, ("--fix-script",)),
        },
    )
    only = check or []
    for one in only:
        check_known(one)
    if list_checks:
        return _list_checks(as_json=as_json)
    peers = [parse_peer(one) for one in peer or []]
    if fix_script is not None:
        where = DEFAULT_PORT if port is None else port
        return print(write_fix_script(fix_script, read_environment().machine, peers, port=where, undo=undo), end="")
    if listen:
        return _listen(port)
    from potluck.doctor.examination import Examination
    from potluck.machine.snapshot import take_facts

    plan = _plan(tuple(peers), is_host=not _HOST_CHECKS.isdisjoint(only))
    if cluster:
        names = tuple(name.strip() for name in (expect or "").split(",") if name.strip())
        seen = _examine_cluster(names, with_torch=needs_torch(only))
        findings = examine_all(seen, only=only)
    elif reach:
        from potluck.doctor.probing.reaching import reach_machines

        seen = reach_machines(reach, plan, with_torch=needs_torch(only))
        findings = examine_all(seen, only=only)
    else:
        check_possible(only)
        wanted = [one.name for one in peers if one.name]
        seen = Examination(machines=(take_facts(names_wanted=wanted, with_torch=needs_torch(only)),), plan=plan)
        findings = examine_machine(seen.machines[0], plan, only=only)
    _show(seen, findings, as_json=as_json, with_ok=show_all or bool(only))
    raise typer.Exit(1 if any(finding.status == "fail" for finding in findings) else 0)


def _check_options(orders: dict[str, object], parts: dict[str, tuple[object, tuple[str, ...]]]) -> None:
    """Refuse two of `orders` at once, and an option of `parts` without one of the orders that it belongs to."""
    from potluck.core.errors import SettingsError

    given = [name for name, value in orders.items() if value]
    if len(given) > 1:
        raise SettingsError(
            f"{given[0]} and {given[1]} cannot be used together", fix=f"type potluck doctor {given[0]} first"
        )
    for name, (value, wholes) in parts.items():
        if value and not set(wholes) & set(given):
            raise SettingsError(f"{name} belongs to {wholes[0]}", fix=f"add {wholes[0]}, or leave {name} out")


def _plan(peers: "tuple[Peer, ...]", *, is_host: bool) -> "IntendedRun":
    """The run to examine for: its peers, and the host if this machine has joined one."""
    from potluck.core.environment import read_environment
    from potluck.doctor.examination import IntendedRun

    home = read_environment().home
    if (home / "joined.json").is_file():
        from potluck.meeting.home import Home

        membership = Home(home).membership()
        if membership is not None and Home(home).is_joined_now():
            return IntendedRun(peers=peers, host=membership.address, host_port=membership.port, is_host=is_host)
    return IntendedRun(peers=peers, is_host=is_host)


def _examine_cluster(expected: tuple[str, ...], *, with_torch: bool) -> "Examination":
    from potluck.core.environment import read_environment
    from potluck.meeting.client.asking import examine_joined
    from potluck.meeting.client.cluster import ClusterClient
    from potluck.meeting.home import Home

    with ClusterClient(Home(read_environment().home)) as cluster:
        return examine_joined(cluster.membership, expected, with_torch=with_torch, tell=warn)


def _show(seen: "Examination", findings: "list[Finding]", *, as_json: bool, with_ok: bool) -> None:
    if as_json:
        import msgspec

        document = {"findings": findings, "seen": seen}
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    from potluck.cli.findings import matrix_tables, print_findings
    from potluck.cli.fitting import print_table
    from potluck.cli.terminal import Console

    console = Console()
    for table in matrix_tables(seen):
        print_table(console, table)
        console.print()
    print_findings(findings, console=console, with_ok=with_ok)


def _list_checks(*, as_json: bool) -> None:
    from potluck.doctor.checks.catalogue import CLUSTER_CHECKS, MACHINE_CHECKS

    rows = [
        *({"id": one.id, "title": one.title, "looks_at": "a machine"} for one in MACHINE_CHECKS.values()),
        *({"id": one.id, "title": one.title, "looks_at": "several machines"} for one in CLUSTER_CHECKS.values()),
    ]
    if as_json:
        import json

        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(f"{row['id']:26} {row['title']}")


def _listen(port: int | None) -> None:
    import secrets

    from potluck.core.environment import DEFAULT_PORT
    from potluck.doctor.examination import IntendedRun, training_interface
    from potluck.doctor.probing.listening import listen
    from potluck.machine.snapshot import take_facts

    interface = training_interface(take_facts(with_torch=False), IntendedRun())
    address = interface.addresses[0].partition("/")[0] if interface and interface.addresses else "ADDRESS"
    token = secrets.token_hex(8)

    def ready(number: int) -> None:
        place = address if number == DEFAULT_PORT else f"{address}:{number}"
        print(f"on the other machine type: potluck doctor --reach {token}@{place}", flush=True)
        print("Ctrl-C ends it", flush=True)

    try:
        listen(token, say, port=DEFAULT_PORT if port is None else port, ready=ready)
    except KeyboardInterrupt:
        print()
