"""Every example, as its first lines say, on two machines: `potluck run EXAMPLE`."""

from pathlib import Path

import pytest

from benchmarks.support.gathering import Gathering
from tests.vision_packages import VISION_EXAMPLES, vision_variables

pytestmark = [pytest.mark.needs_lab, pytest.mark.real_world, pytest.mark.timeout(300)]
EXAMPLES = Path(__file__).parents[2] / "examples"
MACHINES = ("rosa", "lily")
PAIR = "machines:\n" + "".join(
    f"  - {{name: {name}, cores: 0.95, memory: 5G, link: 1gbit, resolves: false}}\n" for name in MACHINES
)


class WithVision(Gathering):
    """Machines on which torchvision, timm and Ultralytics are installed."""

    def variables(self, machine):
        usual, more = super().variables(machine), vision_variables()
        place = {"YOLO_CONFIG_DIR": str(self.place(machine))}
        return {**usual, **more, **place, "PYTHONPATH": f"{usual['PYTHONPATH']}:{more['PYTHONPATH']}"}


@pytest.fixture(scope="module")
def gathering(request, tmp_path_factory):
    with request.param(tmp_path_factory.mktemp("examples"), PAIR) as gathering:
        gathering.host().expect("rosa is here", 60)
        gathering.join("lily")
        gathering.wait_for_copies(2)  # what lily starts as a successor is not what a test leaves behind
        yield gathering


@pytest.mark.parametrize("gathering", [Gathering], indirect=True)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("own_script", []),
        ("ddp_script_on_potluck", ["--epochs", "1"]),
        ("gan", ["--epochs", "1"]),
        ("finetune_lora", ["--epochs", "1"]),
        ("diffusion_lora", ["--epochs", "1"]),
        ("lightning_script", ["--epochs", "1"]),
        ("fabric_script", ["--epochs", "1"]),
        ("finetune_trl", ["--steps", "4"]),
        ("trainer_script_on_potluck", ["--epochs", "1"]),
    ],
)
def test_both_machines_train_in_every_step(gathering, name, arguments):
    output = check_both_train(gathering, name, arguments)
    if name == "trainer_script_on_potluck":
        assert "rosa: the model is saved in" in output  # on the host, though lily is the first by name


@pytest.mark.parametrize("gathering", [WithVision], indirect=True)
@pytest.mark.parametrize("name", VISION_EXAMPLES)
def test_both_machines_train_on_images(gathering, name):
    check_both_train(gathering, name, ["--epochs", "1"])


def check_both_train(gathering, name, arguments):
    keep = [word for machine in MACHINES for word in ("--keep", machine)]
    command = ["run", "--experiment-name", name, *keep, EXAMPLES / f"{name}.py", *arguments]
    code, output = gathering.run("rosa", *command, timeout_s=240)
    assert code == 0, output
    assert f"{name}: finished" in output
    steps = {machine: {record.event.step for record in gathering.steps(name, machine)} for machine in MACHINES}
    assert steps["rosa"] == steps["lily"]
    assert len(steps["rosa"]) >= 3
    return output


@pytest.mark.parametrize("gathering", [Gathering], indirect=True)
def test_an_unchanged_ddp_script_runs_plain(gathering):
    code, output = gathering.run("rosa", "run", "--plain", EXAMPLES / "ddp_script.py", "--epochs", "1", timeout_s=120)
    assert code == 0, output
