"""The runs that a command reads: those in a folder here, or those of the host that this machine has joined."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from potluck.cli.placing import joined_host
from potluck.cli.saying import warn
from potluck.core.environment import read_environment
from potluck.core.errors import PotluckError, RunFolderError, did_you_mean
from potluck.core.run_folder import RunFolder, check_run_name, find_run_folder, newest_run_folder


@contextmanager
def open_runs(names: Sequence[str], folder: Path | None = None) -> Iterator[list[RunFolder]]:
    """The folders of the named runs, or of the newest run if no name is given.

    A run that is not in the local folder is read from the host, if this machine has joined one on another machine.
    """
    runs_dir = folder or read_environment().runs_dir
    with ExitStack() as stack:
        found = []
        for name in names or [""]:
            try:
                found.append(find_run_folder(runs_dir, name) if name else newest_run_folder(runs_dir))
            except RunFolderError as error:
                found.append(_open_on_host(stack, name, error))
        yield found


def _open_on_host(stack: ExitStack, name: str, error: RunFolderError) -> RunFolder:
    """A copy of the run's folder from the host; else a RunFolderError about the local folder and the host."""
    from potluck.meeting.home import Home

    membership = joined_host(read_environment().home)
    # A machine that has taken the host's place keeps the host's runs elsewhere than in the folder of its own runs.
    if membership is None or (membership.is_of_own_host and Home(read_environment().home).has_host()):
        raise error
    from potluck.meeting.client.borrowing import borrow_run, runs_on_host
    from potluck.meeting.client.cluster import ClusterClient

    if name:
        check_run_name(name)
    here = str(error.args[0])
    try:
        cluster = stack.enter_context(ClusterClient(Home(read_environment().home)))
        known = runs_on_host(cluster)
    except PotluckError as silent:
        raise RunFolderError(
            f"{here}, and {membership.host}, which may have it, does not answer: {silent.args[0]}", fix=silent.fix
        ) from None
    if not known or (name and name not in known):
        fix = did_you_mean(name, known) if known else "start one with: potluck train"
        raise RunFolderError(f"{here}, nor on {membership.host}", fix=fix)
    chosen = name or known[-1]
    warn(f"run {chosen} is on {membership.host}: reading it from there")
    return stack.enter_context(borrow_run(cluster, chosen))
