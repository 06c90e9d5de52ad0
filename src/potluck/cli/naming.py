"""The run's name: from --experiment-name, else from the variable EXPERIMENT_NAME."""

from potluck.cli.saying import warn
from potluck.core.environment import read_experiment_name
from potluck.core.errors import SettingsError


def take_experiment_name(given: str | None, *, is_told: bool = True, has_folder: bool = True) -> str | None:
    """The run's name, None if nobody gave one; says on stderr what becomes of EXPERIMENT_NAME if that is set.

    Without a run folder, as of `--plain --solo`, a name is refused; EXPERIMENT_NAME is then for the script alone.
    """
    if not has_folder:
        if given is None:
            return None
        raise SettingsError(
            "--experiment-name names a run's folder, and --plain --solo makes none: the script writes where it wants",
            fix="leave --experiment-name out",
        )
    variable = read_experiment_name()
    if variable is None or variable == given:
        return given
    if is_told:
        used = f"the run is called {variable}, by the variable EXPERIMENT_NAME"
        warn(used if given is None else f"the run is called {given}; EXPERIMENT_NAME={variable} is not used")
    return given or variable
