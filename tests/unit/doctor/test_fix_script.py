"""Fix scripts: for the peers only, in a language that its parser accepts, and each with its undo."""

import shutil
import subprocess

import pytest
import tree_sitter
import tree_sitter_powershell

from potluck.core.errors import SettingsError
from potluck.doctor.checks.catalogue import examine_machine
from potluck.doctor.finding import BASH, POWERSHELL
from potluck.doctor.fix_script import parse_peer, write_fix_script
from tests.unit.doctor.snapshots import NAMES, snapshot

PEERS = [parse_peer("lily=192.168.1.20"), parse_peer("192.168.1.9")]
EVERY = [(system, undo) for system in ("linux", "windows") for undo in (False, True)]


def powershell_errors(text):
    """Lines that tree-sitter's grammar of PowerShell cannot read."""
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_powershell.language()))
    todo, found = [parser.parse(text.encode()).root_node], []
    while todo:
        node = todo.pop()
        if node.is_error or node.is_missing:
            found.append((node.start_point.row + 1, node.text[:60]))
        todo += node.children
    return found


@pytest.mark.parametrize(("system", "undo"), EVERY)
def test_only_the_peers_are_let_in(system, undo):
    script = write_fix_script(system, "oak", PEERS, undo=undo)
    assert "@" not in script.replace("@(", "").replace("@{", "").replace("@rule", "").replace("[@]", "")
    if not (system == "windows" and undo):
        assert "192.168.1.9" in script
        assert "192.168.1.20" in script
    for word in ("Enabled False", "ufw disable", "0.0.0.0/0", "policy accept", "-Profile Any", "flush"):
        assert word not in script


@pytest.mark.parametrize("undo", [False, True])
def test_the_powershell_scripts_parse(undo):
    assert powershell_errors(write_fix_script("windows", "oak", PEERS, undo=undo)) == []


def test_the_parser_sees_a_mistake():
    assert powershell_errors("if ($x { 'no bracket' }")


@pytest.mark.parametrize("undo", [False, True])
def test_the_bash_scripts_pass_shellcheck(tmp_path, undo):
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed; Debian has it as shellcheck")
    file = tmp_path / "fix.sh"
    file.write_text(write_fix_script("linux", "oak", PEERS, undo=undo))
    done = subprocess.run(["shellcheck", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_every_printed_command_parses(name):
    fixes = [fix for finding in examine_machine(snapshot(name)) for fix in finding.fixes]
    for fix in fixes:
        for command in (*fix.commands, *fix.undo):
            if fix.shell == POWERSHELL:
                assert powershell_errors(command) == [], command
            elif fix.shell == BASH:
                done = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
                assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize(
    "text",
    ["0.0.0.0/0", "10.0.0.0/8", "192.168.1.20/24", "home=192.168.1.0/24", "192.168.1.0/99", "192.168.1.0/24;reboot"],
)
def test_only_a_network_of_a_home_is_let_in_as_a_whole(text):
    with pytest.raises(SettingsError):
        parse_peer(text)


@pytest.mark.parametrize("system", ["linux", "windows"])
def test_a_network_is_a_peer_whose_machines_may_get_other_addresses(system):
    script = write_fix_script(system, "oak", [parse_peer("192.168.1.0/24"), parse_peer("10.0.0.7")])
    assert "192.168.1.0/24" in script
    assert "Find-NetRoute -RemoteIPAddress '10.0.0.7'" in script or system == "linux"
    alone = write_fix_script("windows", "oak", [parse_peer("192.168.1.0/24")])
    assert "Find-NetRoute -RemoteIPAddress '192.168.1.1'" in alone
    with pytest.raises(SettingsError) as refused:
        parse_peer("192.168.1.20/24")
    assert "--peer 192.168.1.20 " in refused.value.fix
    assert "--peer 192.168.1.0/24" in refused.value.fix


@pytest.mark.parametrize("text", ["lily", "$(reboot)=192.168.1.2", "a b=192.168.1.2", "192.168.1.2;reboot"])
def test_nothing_but_an_address_goes_into_a_script(text):
    with pytest.raises(SettingsError):
        parse_peer(text)


def test_no_peers_is_no_script():
    with pytest.raises(SettingsError, match="only the peers"):
        write_fix_script("linux", "oak", [])
    with pytest.raises(SettingsError, match="no fix script"):
        write_fix_script("linx", "oak", PEERS)
