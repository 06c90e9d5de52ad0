"""A damaged or missing file of a machine's home is one sentence and a command that mends it."""

import shlex
import subprocess

import pytest

from potluck.core.atomic import write_text
from potluck.core.errors import GateError, MeetingError, PotluckError, RunFolderError, SettingsError
from potluck.core.yaml_file import read_yaml
from potluck.gates.identity import load_or_make
from potluck.meeting.access.token import load_or_make_token
from potluck.meeting.client.joining import check_known
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.host.host import tell_of_new_certificate
from potluck.meeting.host.roster import MachineRoster
from tests.unit.meeting.test_doorway import facts

READERS = {
    "machine-id": lambda home: home.machine_id(),
    "joined.json": lambda home: home.membership(),
    "host/roster.json": lambda home: MachineRoster(home.host_dir / "roster.json"),
    "host/token": lambda home: load_or_make_token(home.host_dir),
    "identity/certificate.pem": lambda home: load_or_make(home.identity_dir),
    "identity/key.pem": lambda home: load_or_make(home.identity_dir),
}
DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-20] if path.exists() else b"{"),
    "a folder": lambda path: (path.unlink(missing_ok=True), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_named_and_the_fix_works_as_printed(tmp_path, name, damage):
    home = Home(tmp_path / "a home")
    load_or_make(home.identity_dir)
    home.machine_id()
    load_or_make_token(home.host_dir)
    MachineRoster(home.host_dir / "roster.json").enrol(facts("lily"))
    path = home.folder / name
    DAMAGES[damage](path)
    with pytest.raises(PotluckError, match="is damaged") as raised:
        READERS[name](home)
    assert str(path.parent) in raised.value.args[0]
    command = raised.value.fix.split(";")[0].split(", then")[0]
    assert command.startswith("rm ")
    subprocess.run(shlex.split(command), check=True)
    READERS[name](home)


@pytest.mark.parametrize("missing", ["key.pem", "certificate.pem"])
def test_half_an_identity_is_not_replaced_without_a_word(tmp_path, missing):
    load_or_make(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(GateError, match=f"{missing} is missing") as raised:
        load_or_make(tmp_path)
    assert "on every other one" in raised.value.fix


def test_a_certificate_with_one_changed_letter_is_not_taken_for_another(tmp_path):
    file = load_or_make(tmp_path).certificate_file
    lines = file.read_text().splitlines()
    for column in range(0, 60, 7):
        changed = lines.copy()
        changed[2] = lines[2][:column] + ("A" if lines[2][column] != "A" else "B") + lines[2][column + 1 :]
        file.write_text("\n".join(changed) + "\n")
        with pytest.raises(GateError, match="is damaged"):
            load_or_make(tmp_path)


def test_a_host_with_a_new_certificate_says_who_has_to_join_again(tmp_path):
    roster = MachineRoster(tmp_path / "roster.json")
    roster.enrol(facts("rosa"))
    told = []
    tell_of_new_certificate(load_or_make(tmp_path / "first"), roster, "rosa", told.append)
    assert told == []  # the first start of a host
    roster.enrol(facts("lily"))
    tell_of_new_certificate(load_or_make(tmp_path / "first"), roster, "rosa", told.append)
    assert told == []  # the certificate that lily knows
    tell_of_new_certificate(load_or_make(tmp_path / "second"), roster, "rosa", told.append)
    assert "lily cannot trust this host until they join again" in told[0]


def test_a_machine_that_lost_its_certificate_is_told_to_join_with_the_line(tmp_path):
    known = HostMembership(machine="lily", host="rosa", address="10.0.0.1", port=1, fingerprint="ab", credential="c")
    identity = load_or_make(tmp_path / "identity")
    check_known(identity, None)
    check_known(load_or_make(tmp_path / "identity"), known)
    with pytest.raises(MeetingError, match="rosa does not know this machine") as raised:
        check_known(identity, known)
    assert "the line that potluck host prints" in raised.value.fix


def test_a_folder_where_a_file_is_written_is_a_sentence(tmp_path):
    (tmp_path / "account.json").mkdir()
    with pytest.raises(RunFolderError, match="is a folder"):
        write_text(tmp_path / "account.json", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["account.json"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"a: [" * 5000,
        b"[" * 100_000,
        b"a: &a [*a]",
        b"a: &a [1,2,3,4,5,6,7,8,9]\n"
        + b"".join(b"%c: &%c [%s]\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 9)) for n in range(98, 110)),
        b"a: 2021-99-99",
        b"? [a]\n: b",
        b"!!python/object:os.system x",
        b"x" * (2 << 20),
    ],
)
def test_hostile_yaml_is_a_sentence(tmp_path, content):
    (tmp_path / "run.yaml").write_bytes(content)
    with pytest.raises(SettingsError, match=r"run\.yaml"):
        read_yaml(tmp_path / "run.yaml")
