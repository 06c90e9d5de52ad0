"""potluck selftest: prove on this machine, and on all that have joined, that training gives what it must."""

from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.saying import say, warn

if TYPE_CHECKING:
    from potluck.selftest.document import Document


def selftest(
    check: Annotated[
        list[str] | None, typer.Option("--check", help="Do this check only; may be given several times.")
    ] = None,
    list_checks: Annotated[bool, typer.Option("--list", help="Name all checks.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="fp32 only, and no comparison with stock PyTorch's speed.")
    ] = False,
    solo: Annotated[bool, typer.Option("--solo", help="Test this machine alone; leave joined machines out.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the JSON document instead of a table and a file.")
    ] = False,
) -> None:
    """Train small models on every device that is here, and compare with what one process and stock PyTorch give.

    Takes about three minutes and writes potluck-selftest.json, to attach to an issue. Ends with 1 if a check fails.
    """
    from potluck.selftest.catalogue import CHECKS, check_known

    only = check or []
    check_known(only)
    if list_checks:
        for name, what in CHECKS.items():
            say(f"{name:12} {what}")
        return
    document = None if solo else _test_joined(only, is_quick=quick, is_shown=not as_json)
    if document is None:
        document = _test_here(only, is_quick=quick, is_shown=not as_json)
    if as_json:
        from potluck.selftest.document import encode

        print(encode(document))
    else:
        _show(document)
    raise typer.Exit(0 if document.is_well else 1)


def _test_here(only: list[str], *, is_quick: bool, is_shown: bool) -> "Document":
    """Test this machine, with a progress bar in a terminal and a line for each check elsewhere."""
    import time

    from potluck.cli.selftest_display import showing_checks
    from potluck.core.environment import read_environment
    from potluck.selftest.conducting import begin
    from potluck.selftest.document import describe_machine, make_document

    began, machine = time.monotonic(), read_environment().machine
    with showing_checks(is_shown=is_shown) as shown, begin(only=only, is_quick=is_quick) as test:
        shown.begin(len(test.planned), ", ".join(["cpu", *test.seen.devices]))
        rows = []
        for planned in test.planned:
            shown.at(planned.check, planned.where)
            rows.append(test.do(planned))
            shown.row(rows[-1])
            shown.advance()
        tested = describe_machine(machine, test.seen)
    return make_document(rows, [tested], is_quick=is_quick, seconds=time.monotonic() - began)


def _test_joined(only: list[str], *, is_quick: bool, is_shown: bool) -> "Document | None":
    """Test all machines that have joined the host; None if this machine has joined none."""
    import time

    from potluck.cli.placing import joined_host
    from potluck.cli.selftest_display import showing_checks
    from potluck.core.environment import read_environment
    from potluck.meeting.client.cluster import ClusterClient
    from potluck.meeting.client.selftesting import JoinedTest
    from potluck.meeting.home import Home
    from potluck.selftest.conducting import begin
    from potluck.selftest.document import make_document

    home, began = read_environment().home, time.monotonic()
    if joined_host(home) is None:
        return None
    with (
        showing_checks(is_shown=is_shown) as shown,
        ClusterClient(Home(home)) as cluster,
        begin(only=only, is_quick=is_quick) as here,
    ):
        test = JoinedTest(cluster, here, only, is_quick, warn)
        steps = test.steps()
        shown.begin(len(steps), f"all machines of {cluster.membership.host}")
        rows = []
        for check, where, do in steps:
            shown.at(check, where)
            for row in do():
                rows.append(row)
                shown.row(row)
            shown.advance()
    return make_document(rows, test.tested, is_quick=is_quick, seconds=time.monotonic() - began)


def _show(document: "Document") -> None:
    """Print the table, what failed with what to type next, and the verdict; write the file."""
    from pathlib import Path

    from potluck.cli.selftest_display import show_rows
    from potluck.core.disk import as_disk_error
    from potluck.core.words import duration
    from potluck.selftest.document import write_document

    show_rows(document)
    try:
        written = write_document(document, Path.cwd())
    except OSError as error:
        warn(str(as_disk_error(error) or error))
        written = None
    place = f"; details for an issue: {written.name}" if written else ""
    say(f"{document.verdict}, in {duration(document.seconds)}{place}")
