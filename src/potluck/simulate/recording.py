"""Simulates a run into a run folder, which reports, comparisons and the dashboard read like that of a real one."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from potluck.core.atomic import write_text
from potluck.core.run_folder import RunFolder, create_run_folder
from potluck.core.words import counted
from potluck.events.types import TrainingBegan
from potluck.simulate.figures import Figures
from potluck.simulate.scenario import Scenario
from potluck.simulate.simulation import Simulation
from potluck.simulate.writing import MOST_FILES, RunWriter, rows_of


def record(scenario: Scenario, runs_dir: Path, name: str, settings: Mapping[str, Any]) -> tuple[RunFolder, Figures]:
    """Simulate, and write run.yaml and the event files. The run's clock starts now."""
    folder = create_run_folder(runs_dir, name)
    write_text(folder.settings_file, yaml.safe_dump({"simulated": True, **settings}, sort_keys=False))
    rows = rows_of(scenario.cluster, scenario.kinds)
    writer = RunWriter(folder, scenario.cluster, rows, time.time())
    wanted = scenario.wanted
    simulation = Simulation(scenario, writer)
    writer.begin(
        name,
        TrainingBegan(
            num_samples=wanted.batch * wanted.num_steps,
            global_batch=wanted.batch,
            steps_per_epoch=wanted.num_steps,
            num_epochs=1,
            last_step=wanted.num_steps,
        ),
    )
    figures = simulation.run()
    writer.tell(simulation.closing_events(), figures.seconds)
    note = ""
    if writer.is_summed:
        num = len(scenario.cluster.workers)
        note = (
            f"{counted(num, 'worker')} are written as {counted(len(rows), 'row')}, since there are more than "
            f"{MOST_FILES}: a row's samples are those of its machines added up, its times their means"
        )
    writer.end(figures.num_steps, figures.seconds, note)
    return folder, figures
