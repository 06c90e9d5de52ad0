"""What `potluck run` finds out about a script before it starts: made for Potluck, or for torchrun."""

import pytest

from potluck.cli.script_kind import check_kind
from potluck.core.errors import PotluckError

DDP = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"


def check(folder, text, *, is_plain=False, resume=False, log_to=None, helper=""):
    (folder / "helper.py").write_text(helper)
    (folder / "train.py").write_text(text)
    check_kind(folder, folder / "train.py", is_plain=is_plain, resume=resume, log_to=log_to)


@pytest.mark.parametrize(
    ("text", "helper", "found"),
    [
        (DDP, "", "init_process_group"),
        ("from accelerate import Accelerator", "", "accelerate"),
        ("import helper", DDP, "init_process_group"),
        ("def (", "", ""),
        ("print('hello')", "", ""),
        ("import potluck\n" + DDP, "", ""),
        ("import helper\n" + DDP, "import potluck", ""),
    ],
)
def test_a_script_for_torchrun_is_told_of_plain(tmp_path, capsys, text, helper, found):
    check(tmp_path, text, helper=helper)
    told = capsys.readouterr().err
    assert ("potluck run --plain" in told) == bool(found)
    assert found in told


def test_plain_refuses_what_it_cannot_do(tmp_path):
    check(tmp_path, DDP, is_plain=True)
    with pytest.raises(PotluckError, match="uses Potluck") as told:
        check(tmp_path, "import potluck", is_plain=True)
    assert told.value.fix == "leave --plain out"
    with pytest.raises(PotluckError, match="--resume") as told:
        check(tmp_path, DDP, is_plain=True, resume=True)
    assert "with its own argument for a checkpoint" in told.value.fix
    with pytest.raises(PotluckError, match="tensorboard"):
        check(tmp_path, DDP, is_plain=True, log_to="tensorboard")
