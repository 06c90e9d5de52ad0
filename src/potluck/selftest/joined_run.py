"""The self-test's run on joined machines: the script that is sent, and what its workers' events say."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from potluck.core.run_folder import RunFolder
from potluck.events.log import read_records
from potluck.events.types import MetricsLogged, RunStarted, StepCommitted

SCRIPT = "from potluck.probes.selftest.joined import main\n\nmain()\n"
_NAME = "selftest.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedOrder:
    """What the workers of the run train."""

    precision: str
    machines: list[str]
    policy: str = "dynamic"
    epochs: int = 2
    victim: str = ""
    """The machine one of whose workers kills itself once."""

    def as_data(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """One worker's parameters at the end, its samples of each step, and how often its process was started."""

    parameters: tuple[float, ...]
    shares: tuple[int, ...]
    num_starts: int
    device: str


def write_script(folder: Path) -> Path:
    """The script of the run, in an empty folder."""
    path = folder / _NAME
    path.write_text(SCRIPT)
    return path


def names_of(number: int) -> list[str]:
    """Names under which the parameters' numbers are logged."""
    return [f"p{index}" for index in range(number)]


def read_results(folder: RunFolder) -> dict[str, WorkerResult]:
    """By worker, as its event file is called."""
    return {file.stem: _read(record.event for record in read_records(file)) for file in folder.event_files()}


def _read(events: Iterable[object]) -> WorkerResult:
    parameters: tuple[float, ...] = ()
    shares, num_starts, device = [], 0, ""
    for event in events:
        match event:
            case RunStarted():
                num_starts, device = num_starts + 1, event.device
            case StepCommitted():
                shares.append(event.own_samples)
            case MetricsLogged():
                values = {name: value for name, value in event.values.items() if name.startswith("p")}
                parameters = tuple(
                    float("nan") if (value := values[name]) is None else value for name in names_of(len(values))
                )
    return WorkerResult(parameters, tuple(shares), num_starts, device)
