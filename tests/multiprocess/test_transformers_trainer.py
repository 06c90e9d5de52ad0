"""Hugging Face's Trainer on Potluck logs what it logs on one process, whatever the split, also after a resume."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

EXAMPLES = Path(__file__).parents[2] / "examples"
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]


def run(script, *arguments, launch=(), **variables):
    command = [sys.executable, *launch, EXAMPLES / script, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def logged(folder):
    """What the newest checkpoint's trainer_state.json has logged: (step, name) to number."""
    newest = max(folder.glob("checkpoint-*"), key=lambda one: int(one.name.split("-")[1]))
    history = json.loads((newest / "trainer_state.json").read_text())["log_history"]
    names = ("loss", "grad_norm", "learning_rate", "epoch", "eval_loss")
    return {(entry["step"], name): entry[name] for entry in history for name in names if name in entry}


def check_same(found, wanted):
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, rel=1e-5, abs=1e-5 if key[1] == "grad_norm" else 1e-7), key


@pytest.mark.timeout(400)
def test_the_script_logs_the_same_before_and_after_alone_together_and_resumed(workplace):
    before, after = (EXAMPLES / f"trainer_script{end}.py" for end in ("", "_on_potluck"))
    rest = [text.split('"""\n', 1)[1].splitlines() for text in (before.read_text(), after.read_text())]
    assert [line for line in rest[1] if line not in rest[0]] == [
        "from potluck.integrations.transformers import on_potluck",
        "    trainer = on_potluck(Trainer)(",
    ]
    assert len(after.read_text().splitlines()) < 80

    run(before.name, "--output", "plain")
    plain = logged(workplace / "plain")
    assert sum(name == "eval_loss" for _, name in plain) >= 2
    run(after.name, "--output", "alone")
    check_same(logged(workplace / "alone"), plain)
    out = run(after.name, "--output", "together", launch=TORCHRUN)
    check_same(logged(workplace / "together"), plain)
    assert out.count("'eval_loss'") == 3, out  # once an epoch, not once a worker

    # Half of it in one run, the rest in another that has only the Trainer's own checkpoint.
    (workplace / "halves").mkdir()
    early = min((workplace / "alone").glob("checkpoint-*"), key=lambda one: int(one.name.split("-")[1]))
    (workplace / "halves" / early.name).symlink_to(early)
    run(after.name, "--output", "halves", "--resume", launch=TORCHRUN)
    check_same(logged(workplace / "halves"), plain)
    one, other = (load_file(workplace / name / "adapter_model.safetensors") for name in ("plain", "halves"))
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.timeout(300)
def test_trls_trainer_logs_the_same_on_two_workers_and_resumed(workplace):
    """The plain script is the example without Potluck's two lines."""
    text = (EXAMPLES / "finetune_trl.py").read_text()
    assert len(text.splitlines()) < 80
    lines = [line for line in text.splitlines() if not line.endswith("import on_potluck")]
    plain = workplace / "plain_trl.py"
    plain.write_text("\n".join(lines).replace("on_potluck(SFTTrainer)(", "SFTTrainer("))
    run(plain, "--output", "plain")
    wanted = logged(workplace / "plain")
    assert sum(name == "loss" for _, name in wanted) == 6
    run("finetune_trl.py", "--output", "together", launch=TORCHRUN)
    check_same(logged(workplace / "together"), wanted)

    # The last half in another run, from the Trainer's checkpoint of the first.
    resumed = workplace / "resumed_trl.py"
    begun = text.replace('report_to="none",', 'report_to="none", save_steps=6,')
    resumed.write_text(begun)
    run(resumed, "--output", "halves", launch=TORCHRUN)
    shutil.rmtree(workplace / "halves" / "checkpoint-12")
    resumed.write_text(begun.replace("trainer.train()", "trainer.train(resume_from_checkpoint=True)"))
    run(resumed, "--output", "halves", launch=TORCHRUN)
    check_same(logged(workplace / "halves"), wanted)
