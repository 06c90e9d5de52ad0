"""Whatever stands in an event file, reading it gives events or one sentence that names the file and the line."""

import os
import shlex
import subprocess

import pytest

from potluck.core.errors import EventLogError
from potluck.events import follow
from potluck.events.alive import is_held
from potluck.events.follow import FollowedFile
from potluck.events.lines import MOST_LINE_BYTES, parse_lines
from potluck.events.log import EventLog, read_first_records, read_last_records, read_records
from potluck.events.types import GroupChanged, Notice

GOOD = b'{"sequence":0,"time":1.0,"event":{"type":"notice","text":"good"}}\n'
NOTICE = b'{"sequence":1,"time":1.0,"event":{"type":"notice","text":%s}}\n'
BAD = {
    "bytes that are no text": b'{"sequence":1,"time":1.0,"event":{"type":"\xff\xfe"}}\n',
    "text that is no text": NOTICE % b'"\xff"',
    "half a surrogate": NOTICE % b'"\\ud800"',
    "deep data": NOTICE % (b"[" * 100_000),
    "deep data alone": b"[" * 100_000 + b"\n",
    "deep data of an unknown kind": b'{"sequence":1,"event":{"type":"new","x":' + b"[" * 100_000 + b"\n",
    "a number that is infinite": b'{"sequence":1,"time":1e999,"event":{"type":"notice","text":""}}\n',
    "a number of 5,000 digits": b'{"sequence":' + b"9" * 5000 + b',"time":1.0,"event":{"type":"notice","text":""}}\n',
    "a year beyond all calendars": b'{"sequence":1,"time":1e300,"event":{"type":"notice","text":""}}\n',
    "a step that no array holds": b'{"sequence":1,"time":1,"event":{"type":"machine_unbenched","step":'
    b'99999999999999999999,"machine":"a","reason":""}}\n',
    "a step before the first": b'{"sequence":1,"time":1,"event":{"type":"machine_unbenched","step":-1,'
    b'"machine":"a","reason":""}}\n',
    "zeros": b"\0" * 100 + b"\n",
    "null": b"null\n",
}
READERS = {
    "all": lambda path: list(read_records(path)),
    "the last": lambda path: read_last_records(path, 1 << 24),
    "the first": lambda path: read_first_records(path, 1 << 24),
    "what is new": lambda path: FollowedFile(path).read(),
    "lines": lambda path: parse_lines(path.read_bytes(), path),
}


@pytest.mark.parametrize("how", READERS)
@pytest.mark.parametrize("what", BAD)
def test_a_bad_line_is_named_with_its_file_and_a_fix_that_works(tmp_path, what, how):
    path = tmp_path / "a folder; with 'quotes'" / "lily-0.jsonl"
    path.parent.mkdir()
    path.write_bytes(GOOD + BAD[what] + GOOD)
    with pytest.raises(EventLogError) as raised:
        READERS[how](path)
    assert f"{path}, line 2" in raised.value.args[0]
    command = raised.value.fix.partition("(")[2].rpartition(")")[0]
    subprocess.run(shlex.split(command), check=True)
    assert [record.event.text for record in READERS[how](path)] == ["good", "good"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("how", [how for how in READERS if how != "lines"])
def test_what_is_no_file_is_named_and_nobody_waits_for_it(tmp_path, how):
    folder, pipe = tmp_path / "lily-0.jsonl", tmp_path / "fern-0.jsonl"
    folder.mkdir()
    os.mkfifo(pipe)
    for path in (folder, pipe, tmp_path / "missing.jsonl"):
        with pytest.raises(EventLogError, match="cannot be read"):
            READERS[how](path)
        assert not is_held(path)


def test_a_folder_in_the_place_of_a_log_is_a_sentence(tmp_path):
    (tmp_path / "log").mkdir()
    with pytest.raises(EventLogError, match="cannot be written"):
        EventLog(tmp_path / "log")


def test_text_in_events_cannot_command_a_terminal(tmp_path):
    log = EventLog(tmp_path / "log")
    log.append(Notice(text='\x1b]0;owned\x07 é \x7f\x9b2J two\nlines \\ "quoted"'))
    log.close()
    shown = '\\x1b]0;owned\\x07 é \\x7f\\x9b2J two\nlines \\ "quoted"'
    for how, read in READERS.items():
        assert [record.event.text for record in read(tmp_path / "log")] == [shown], how


def test_a_long_file_of_unknown_kinds_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "BLOCK_BYTES", 100)
    path = tmp_path / "log"
    path.write_bytes(b'{"sequence":1,"time":1.0,"event":{"type":"from_the_future"}}\n' * 2000 + GOOD)
    assert [record.event.text for record in FollowedFile(path).read()] == ["good"]


@pytest.mark.parametrize("how", ["all", "what is new"])
def test_a_line_without_end_is_not_read_into_memory(tmp_path, how):
    path = tmp_path / "log"
    path.write_bytes(GOOD)
    with path.open("ab") as file:
        file.truncate(1 << 40)  # a hole of a terabyte: zeros and no newline
    with pytest.raises(EventLogError, match=f"line 2 is longer than {MOST_LINE_BYTES} bytes"):
        followed = FollowedFile(path)
        while READERS["all"](path) if how == "all" else followed.read():
            pass


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_sentences_of_older_files_are_read_as_changes_of_the_group(read, tmp_path):
    sentences = {
        "lily left at step 160; 2 machines go on (1.5 s)": GroupChanged(
            step=161, num_machines=2, reason="lost", stall_s=1.5, left={"lily": []}
        ),
        "a worker of bo (bo-1) joined at step 7; 1 machine goes on (0.1 s)": GroupChanged(
            step=8, num_machines=1, reason="joined", stall_s=0.1, joined={"bo": ["bo-1"]}
        ),
        "somebody left at step 7; nobody knows": Notice(text="somebody left at step 7; nobody knows"),
    }
    file = tmp_path / "bo-0.jsonl"
    file.write_bytes(b"".join(NOTICE % f'"{text}"'.encode() for text in sentences))
    assert [record.event for record in read(file)] == list(sentences.values())
