"""Status lines: what a joined machine shows of its runs, and what a host prints of a machine."""

from potluck.meeting.transfer.run_tail import Pace


def silence_line(host: str, silent_s: float) -> str:
    """Shown while the host does not answer; the first moment counts as a second."""
    return f"{host} has not answered for {max(1, round(silent_s))} s; what runs here waits for it"


def run_line(run: str, pace: Pace, *, is_plain: bool = False) -> str:
    """A run's last step and speed, or that it is starting; the steps of a plain run are not known."""
    if is_plain:
        return f"run {run}: its script runs here"
    if pace.step == 0:
        return start_line(run)
    return f"run {run}: step {pace.step}, {pace.samples_per_s:,.0f} samples/s over all machines"


def start_line(run: str) -> str:
    """Shown until a run has done something here."""
    return f"run {run}: starting, no step is done yet"


def files_line(run: str, host: str) -> str:
    """Shown while files of a run that has ended here are still being sent."""
    return f"run {run}: training has ended here; what it wrote goes to {host}"


def over_line(run: str, pace: Pace, *, is_plain: bool = False) -> str:
    """Printed when a run is over; for a short run it may be the only line about its steps."""
    if is_plain:
        return f"run {run} is over on this machine"
    return f"run {run} is over on this machine; its last step here was {pace.step}"


def state_line(machine: str, state: str, run: str | None) -> str:
    """Printed by the host when a machine's state changes."""
    return f"{machine} {_STATES.get(state, f'is {state}')}{f', in run {run}' if run else ''}"


_STATES = {
    "left": "has left",
    "leaving": "is leaving after its step",
    "getting ready": "has joined and is getting ready: it counts its devices",
    "away": "is away: the host hears nothing from it, and it comes back by itself when it can be reached",
}
