"""Every command and option that the docs, an error or a fix tells people to type exists."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from potluck.cli import app

ROOT = Path(__file__).parents[3]
COMMANDS = typer.main.get_command(app).commands
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")])
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def options_of(command):
    spelled = {name for parameter in COMMANDS[command].params for name in (*parameter.opts, *parameter.secondary_opts)}
    return spelled | {"--help"}


def typed_in(text):
    """Lines that begin with potluck, as code: in a block, with or without a prompt, or between backticks."""
    for number, block in enumerate(text.split("```")):
        if number % 2:
            yield from re.findall(r"^\s*(?:\S*\$ )?potluck (.+)", block.replace("\\\n", " "), re.MULTILINE)
        else:
            yield from re.findall(r"`potluck ([^`]+)`", block)


def unknown_words(line):
    """What in such a line is no command, or no option of its command."""
    try:
        command, *words = shlex.split(line.split(" | ")[0].split(" > ")[0], comments=True)
    except ValueError:  # a quote that is part of a sentence
        command, *words = line.split()
    if command.startswith("-"):
        return set()
    if command not in COMMANDS:
        return {command}
    if command == "run":  # what follows the script is the script's
        words = words[: next((n for n, word in enumerate(words) if word.endswith(".py")), len(words))]
    return {word.partition("=")[0] for word in words if word.startswith("--")} - options_of(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_types_exists(page):
    wrong = {line: unknown for line in typed_in(page.read_text()) if (unknown := unknown_words(line))}
    assert not wrong


def test_the_pages_type_something():
    lines = [line for page in PAGES for line in typed_in(page.read_text())]
    assert len(lines) > 80
    assert {line.split()[0] for line in lines} >= {"doctor", "host", "join", "train", "run", "explain", "status"}


def test_what_a_message_tells_people_to_type_exists():
    found = [
        (command, option)
        for source in SOURCES
        for command, options in re.findall(r"potluck ([a-z]+)((?: --[a-z][a-z-]+(?: [A-Z\d.]+)?)+)", source.read_text())
        for option in re.findall(r"--[a-z-]+", options)
    ]
    assert len(found) > 10
    assert [pair for pair in found if pair[0] not in COMMANDS or pair[1] not in options_of(pair[0])] == []
