"""The unit that --service writes: systemd reads back every word as it was given, and has nothing to complain of."""

import shutil
import subprocess
from pathlib import Path

import pytest

from potluck.core.errors import ServiceError
from potluck.machine.systemd import UserUnit, check_manager
from potluck.machine.unit_file import quote_word, unit_text

ODD = [
    "plain", "two words", "", "50%", "%h", "$HOME", "${HOME}", '"quoted"', "it's", "back\\slash", "end\\", ";",
    "; reboot", "@x", "-x", ":x", "new\nline", "tab\there", "größe", "#no comment", "\\x41", "$$", "`reboot`",
]  # fmt: skip


def text_for(folder: Path, *words: str) -> str:
    return unit_text("Potluck test", ["/bin/true", *words], folder=folder, variables={"POTLUCK_NAME": 'a b%c"d'})


def test_specifiers_quotes_and_backslashes_are_escaped_and_dollars_are_not_expanded():
    assert quote_word('a "b" 5% \\ $x') == '"a \\"b\\" 5%% \\\\ $x"'
    assert "ExecStart=:" in text_for(Path("/tmp"), "$x")
    with pytest.raises(ServiceError, match="NUL"):
        quote_word("a\0b")
    with pytest.raises(ServiceError, match="cannot work in the folder"):
        text_for(Path("/tmp/a\nExecStartPre=reboot"))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_finds_nothing_wrong(tmp_path):
    folder = tmp_path / "50% of it"
    folder.mkdir()
    file = tmp_path / "potluck-test.service"
    file.write_text(text_for(folder, *ODD))
    command = ["systemd-analyze", "verify", "--user", "--man=no", "--generators=no", file]
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    complaints = [line for line in done.stderr.splitlines() if "potluck-test" in line]
    assert (complaints, done.returncode) == ([], 0), done.stderr


def test_without_a_manager_the_error_says_what_to_type(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/nobody")
    with pytest.raises(ServiceError, match="systemd keeps no services for this user here") as caught:
        check_manager("potluck host")
    assert "potluck host" in caught.value.fix or "export XDG_RUNTIME_DIR" in caught.value.fix


def test_a_unit_file_is_for_its_user_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    unit = UserUnit("potluck-test.service")
    monkeypatch.setattr(UserUnit, "_ask", lambda *_: "")
    unit.write("text")
    assert unit.file == tmp_path / "systemd" / "user" / "potluck-test.service"
    assert unit.file.stat().st_mode & 0o077 == 0
