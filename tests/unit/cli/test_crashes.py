"""A script that fails on the cluster shows one traceback, says where, and what to type."""

from potluck.cli.crashes import CrashTeller

TRACE = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    1 / 0\nZeroDivisionError: no 5'
OTHER_NUMBER = TRACE.replace("no 5", "no 7")  # the size of a machine's part, for example


def worker(number, message="", state="running", restarts=0):
    return {"number": number, "message": message, "state": state, "restarts": restarts, "device": "cpu"}


def run(state="running", message="", **workers):
    return {
        "run": "first",
        "state": state,
        "message": message,
        "folder": "/home/anna/experiments/first",
        "settings": {"script": "train.py", "arguments": []},
        "is_plain": False,
        "workers": {machine: [one] for machine, one in workers.items()},
    }


def test_the_same_traceback_is_told_once_however_many_machines_have_it():
    said = []
    crashes = CrashTeller(said.append, "rosa", {})
    crashes.look(run(rosa=worker(0, TRACE), lily=worker(1)))
    crashes.look(run(rosa=worker(0, TRACE), lily=worker(1, OTHER_NUMBER)))
    crashes.look(run(rosa=worker(0, TRACE, restarts=1), lily=worker(1, TRACE, restarts=1)))
    assert said == [
        f"worker rosa-0 crashed on rosa; it starts again:\n{TRACE}",
        "worker lily-1 crashed as rosa-0 did; it starts again: ZeroDivisionError: no 7",
    ]
    ended = run("failed", f"rosa: {TRACE}", rosa=worker(0, TRACE, "failed", 3), lily=worker(1, TRACE, "failed", 3))
    crashes.look(ended)
    error = crashes.failure(ended)
    assert len(said) == 2
    assert "Traceback" not in error.args[0]
    assert error.args[0] == "run first failed on rosa: ZeroDivisionError: no 5 (the traceback is above)"
    assert "potluck run --solo train.py" in error.fix
    assert "the whole traceback is in /home/anna/experiments/first/logs on rosa" in error.fix
    assert "mend what is named above" not in error.fix


def test_a_run_that_fails_at_once_shows_its_traceback_at_the_end():
    crashes = CrashTeller(lambda _: None, "rosa", {})
    error = crashes.failure(run("failed", f"lily: {TRACE}", rosa=worker(0), lily=worker(1, TRACE, "failed")))
    assert error.args[0] == f"run first failed on lily:\n{TRACE}"


def test_an_error_with_a_fix_of_its_own_keeps_it():
    crashes = CrashTeller(lambda _: None, "rosa", {})
    message = "the run has no data yet\n  fix: call run.loader first"
    error = crashes.failure(run("failed", f"lily: {message}", rosa=worker(0), lily=worker(1, message, "failed")))
    assert error.args[0] == "run first failed on lily: the run has no data yet"
    assert error.fix == "call run.loader first"


def test_a_known_cause_stands_first_in_the_fix():
    crashes = CrashTeller(lambda _: None, "rosa", {})
    message = "ModuleNotFoundError: No module named 'timm'"
    error = crashes.failure(run("failed", f"lily: {message}", lily=worker(1, message, "failed")))
    assert error.fix.startswith("timm is a Python package that is not installed")


def test_machines_that_fail_each_for_its_own_reason_are_all_named():
    crashes = CrashTeller(lambda _: None, "rosa", {})
    texts = {name: f"{name} does not have scipy\n  fix: on {name}: pip install scipy" for name in ("rosa", "lily")}
    workers = {name: worker(number, texts[name], "failed") for number, name in enumerate(texts)}
    error = crashes.failure(run("failed", "\n".join(texts.values()), **workers))
    assert error.args[0] == "run first failed:\nrosa does not have scipy\nlily does not have scipy"
    assert error.fix == "on rosa: pip install scipy; on lily: pip install scipy"


def test_of_a_plain_run_only_the_cause_is_told_once_and_with_fixes_that_fit_it():
    told = []
    teller = CrashTeller(told.append, "rosa", {})
    error = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: no data'
    running = run(rosa=worker(0, "RuntimeError: Connection closed by peer", "failed"))
    plain = {**running, "is_plain": True, "workers": {**running["workers"], "lily": [worker(1, error, "failed")]}}
    teller.look(plain)
    assert told == []
    ended = teller.failure({**plain, "state": "failed", "message": f"lily: {error}"})
    assert str(ended.args[0]) == f"run first failed on lily:\n{error}"
    assert "potluck run --plain --solo train.py" in ended.fix
    full = "lily: torch.OutOfMemoryError: CUDA out of memory."
    memory = teller.failure({**plain, "state": "failed", "message": full})
    assert "lower the batch size in the script" in memory.fix
    assert "--micro-batch" not in memory.fix
    lost = teller.failure({**plain, "state": "failed", "message": "lily was lost: the host hears nothing from it"})
    assert str(lost.args[0]) == "run first failed: lily was lost: the host hears nothing from it"
