"""The run's name: from --experiment-name, else from the variable EXPERIMENT_NAME."""

from potluck.cli.saying import warn
from potluck.core.environment import read_experiment_name


def take_experiment_name(given: str | None, *, is_told: bool = True) -> str | None:
    """The run's name, None if nobody gave one; says on stderr what becomes of EXPERIMENT_NAME if that is set."""
    variable = read_experiment_name()
    if variable is None or variable == given:
        return given
    if is_told:
        used = f"the run is called {variable}, by the variable EXPERIMENT_NAME"
        warn(used if given is None else f"the run is called {given}; EXPERIMENT_NAME={variable} is not used")
    return given or variable
