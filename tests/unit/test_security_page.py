"""Every sentence of docs/security.md about what is protected has tests that hold it, and these tests exist."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
UNIT, LAB = "tests/unit/", "tests/lab/"
MEETING, GATES = f"{UNIT}meeting/test_", f"{UNIT}gates/test_"
CLAIMS = f"{MEETING}security_claims.py::test_"
ADMISSION = f"{MEETING}admission.py::test_"
SERVICE = f"{MEETING}service.py::test_"
OUTSIDER = f"{LAB}test_outsider.py::test_an_outsider_learns_takes_and_disturbs_nothing"
RECORDING = f"{LAB}test_nothing_in_the_open.py::test_a_recording_of_a_whole_run_shows_nothing"
NUMBERS = f"{CLAIMS}the_numbers_on_the_page_are_those_of_the_code"

# The first words of a sentence (or of a row of the table), and the tests that would fail if it were not true.
PROTECTED = {
    "Machines that may take the host's place": [
        f"{MEETING}state_copy.py::test_a_restored_host_knows_machines_runs_and_token"
    ],
    "It comes over the host's service": [
        f"{MEETING}state_copy.py::test_only_successors_get_the_hosts_state_and_files",
        f"{MEETING}state_copy.py::test_the_copy_on_disk_is_encrypted_with_the_machines_own_key",
    ],
    "So a successor is trusted": [f"{MEETING}reign.py::test_a_named_successor_breaks_ties"],
    "The host's private key stays": [f"{MEETING}state_copy.py::test_a_restored_host_knows_machines_runs_and_token"],
    "Machines ask each other about the host": [
        f"{GATES}gates_together.py::test_a_note_comes_over_the_link_of_its_sender_only_and_several_readers_get_it"
    ],
    "a machine's gate": [OUTSIDER],
    "the host's HTTPS service": [OUTSIDER, f"{SERVICE}only_the_version_can_be_asked_without_a_credential"],
    "the host's wheel": [f"{GATES}handing_out.py::test_without_the_key_there_is_no_answer"],
    "workers, their stores, torchft's managers": [OUTSIDER],
    "A machine sends files of a folder only": [
        "tests/multiprocess/test_sharing.py::test_only_a_folder_that_somebody_here_has_shared_is_sent"
    ],
    "Files that arrive are written below": [
        f"{UNIT}sharing/test_catalogue.py::test_paths_stay_inside_the_folder",
    ],
    "the host's announcement": [f"{MEETING}invitation.py::test_an_invitation_does_not_show_its_token_by_accident"],
    "The line that `potluck host` prints holds": [
        f"{CLAIMS}the_line_holds_128_bits_of_token_and_128_bits_of_sha_256",
        f"{MEETING}invitation.py::test_what_is_printed_is_what_is_read",
    ],
    "A machine that joins compares": [
        f"{CLAIMS}nothing_is_sent_to_a_host_with_another_certificate",
        f"{MEETING}proof.py::test_a_proof_is_of_one_token_challenge_host_and_body",
        f"{MEETING}proof.py::test_a_challenge_works_once_and_not_for_ever",
    ],
    "A recorded request is worth nothing": [f"{MEETING}proof.py::test_a_proof_is_of_one_token_challenge_host_and_body"],
    "The host proves in its answer": [f"{CLAIMS}a_host_that_does_not_know_the_token_is_not_obeyed"],
    "Each machine makes a P-256 key": [
        f"{GATES}identity.py::test_it_is_made_once_and_only_its_owner_may_read_it",
        f"{CLAIMS}keys_are_p_256_and_connections_tls_1_3",
    ],
    "The certificate is part of the request": [
        f"{CLAIMS}the_proof_covers_the_certificate_of_the_machine_that_joins",
        f"{MEETING}doorway.py::test_a_copied_identity_is_refused_and_an_own_one_is_not",
    ],
    "What a machine tells others holds": [
        f"{CLAIMS}what_a_machine_tells_of_itself_holds_its_certificate_and_not_its_key"
    ],
    "Machines talk to each other through": [RECORDING, f"{CLAIMS}keys_are_p_256_and_connections_tls_1_3"],
    "A gate finishes a handshake only": [
        f"{GATES}carrying.py::test_only_members_shake_hands",
        f"{GATES}carrying.py::test_a_session_cannot_be_taken_up_again",
        OUTSIDER,
    ],
    "This encrypts and authenticates": [RECORDING],
    "The host's service has TLS 1.3": [
        f"{CLAIMS}keys_are_p_256_and_connections_tls_1_3",
        f"{CLAIMS}nothing_is_sent_to_a_host_with_another_certificate",
    ],
    "The host takes a machine that leaves": [
        f"{MEETING}roster.py::test_all_gates_hear_who_is_a_member_and_who_is_not_any_more"
    ],
    "All gates get the new list": [
        f"{GATES}gates_together.py::test_a_member_that_is_removed_gets_nothing_even_if_it_was_half_in",
        f"{GATES}gates_together.py::test_a_relayed_connection_ends_when_its_origin_is_removed",
        OUTSIDER,
    ],
    "The host tells every gate which machines": [
        f"{GATES}ports.py::test_nobody_hears_of_ports_of_a_run_that_it_has_no_part_in"
    ],
    "A gate connects two machines of a run": [
        f"{GATES}ports.py::test_a_machine_stands_in_for_others_of_its_own_runs_only",
        f"{GATES}gates_together.py::test_a_letter_that_asks_for_impossible_ports_disturbs_nobody",
    ],
    "A machine of the cluster that is not": [OUTSIDER],
    "A worker's entry in the run's roster": [
        f"{UNIT}engine/test_member_proof.py::test_an_entry_of_a_stranger_another_group_or_another_place_counts_for_nothing"
    ],
    "States that heal a worker": [
        f"{UNIT}engine/test_healing.py::test_a_peer_with_a_wrong_secret_is_refused_by_both_sides"
    ],
    "Nothing from the network is unpickled": [f"{UNIT}engine/test_healing.py::test_a_pickle_is_never_read"],
    "Files of `--resume-from` arrive": [
        f"{MEETING}states.py::test_only_the_last_few_wait_for_their_run",
        f"{MEETING}states.py::test_what_is_no_checkpoint_or_too_large_is_refused",
        f"{UNIT}engine/test_checkpoint_file.py::test_a_file_cannot_run_code",
        NUMBERS,
    ],
    "Checkpoints are read with": [f"{UNIT}engine/test_checkpoint_file.py::test_a_file_cannot_run_code"],
    "Strangers at a gate get 5 s": [f"{GATES}entrance.py::test_who_is_slow_is_cut_off", NUMBERS],
    "At most 128 handshakes": [
        f"{GATES}entrance.py::test_a_crowd_of_idle_strangers_does_not_keep_a_member_out",
        NUMBERS,
    ],
    "The host's service takes 256 connections": [
        f"{CLAIMS}the_service_takes_so_many_connections_and_drops_who_asks_nothing",
        NUMBERS,
    ],
    "A gate gives no answer": [
        f"{GATES}entrance.py::test_garbage_gets_no_answer_and_members_still_pass",
        f"{GATES}entrance.py::test_a_gate_without_a_service_has_no_https",
    ],
    "The lines for a machine without Potluck hold": [
        f"{MEETING}install_lines.py::test_both_lines_install_the_pinned_wheel_and_join",
        f"{MEETING}own_wheel.py::test_pip_refuses_another_file_than_the_one_that_the_line_names",
    ],
    "The gate of the host sends the wheel": [
        f"{GATES}handing_out.py::test_the_file_goes_to_whoever_has_the_key",
        f"{GATES}handing_out.py::test_another_name_under_the_key_is_not_found",
        f"{MEETING}install_lines.py::test_the_key_in_the_url_tells_no_other_secret",
    ],
    "A request without the key gets no answer": [
        f"{GATES}handing_out.py::test_without_the_key_there_is_no_answer",
        f"{GATES}handing_out.py::test_a_head_that_does_not_end_is_cut_off",
        NUMBERS,
    ],
    "One connection gets one answer": [
        f"{GATES}handing_out.py::test_requests_in_a_row_get_one_answer",
        f"{GATES}handing_out.py::test_who_does_not_read_is_cut_off",
        f"{GATES}handing_out.py::test_a_crowd_of_slow_readers_keeps_neither_others_nor_members_out",
        NUMBERS,
    ],
    "Everything else that these lines install": [],
    "A joined machine has a credential": [f"{CLAIMS}token_and_credential_are_in_no_file_but_their_own"],
    "Every path needs a credential": [f"{SERVICE}only_the_version_can_be_asked_without_a_credential"],
    "The host checks the credential": [f"{ADMISSION}a_body_without_a_credential_is_never_read", OUTSIDER],
    "A JSON body has at most 64 kB": [f"{ADMISSION}json_is_small_and_deliveries_have_their_own_bound", NUMBERS],
    "The headers of a request have 5 s": [f"{ADMISSION}headers_and_bodies_have_to_come_in_time", NUMBERS],
    "After ten wrong answers": [
        f"{MEETING}proof.py::test_an_address_with_many_wrong_answers_has_to_wait_and_others_do_not",
        NUMBERS,
    ],
    "A right credential or proof never waits": [
        f"{ADMISSION}a_right_credential_is_not_locked_out_by_wrong_answers_from_its_address",
        f"{ADMISSION}a_right_token_is_not_locked_out_by_wrong_answers_from_its_address",
        OUTSIDER,
    ],
    "Only to a machine that has proven the token": [
        f"{MEETING}parity_at_the_door.py::test_a_machine_without_the_token_is_not_told_the_host_s_versions",
        f"{MEETING}parity_at_the_door.py::test_another_reading_is_refused_with_its_number_and_the_fix",
        f"{MEETING}parity_at_the_door.py::test_a_reading_fits_into_a_request",
    ],
    "A damaged or hostile line": [
        f"{UNIT}events/test_lines.py::test_a_bad_line_is_named_with_its_file_and_a_fix_that_works",
        f"{MEETING}damaged_runs.py::test_every_path_answers_although_a_machine_has_sent_a_bad_line",
    ],
    "So is a damaged file": [
        f"{MEETING}damage.py::test_random_damage_is_a_sentence_and_never_a_traceback",
        f"{MEETING}damaged_home.py::test_a_damaged_file_is_named_and_the_fix_works_as_printed",
        f"{MEETING}damaged_runs.py::test_a_tick_survives_anything_and_says_it_once",
    ],
    "A host takes at most 256 event files": [
        f"{MEETING}damaged_runs.py::test_a_host_takes_so_many_files_of_a_machine_and_so_much_of_each",
        NUMBERS,
    ],
    "YAML is read as plain data": [f"{MEETING}damaged_home.py::test_hostile_yaml_is_a_sentence"],
    "Text from events, settings": [
        f"{UNIT}cli/test_terminal.py::test_no_command_prints_what_events_and_settings_hide",
        f"{UNIT}cli/test_terminal.py::test_tables_and_lines_show_escapes_and_keep_their_own_colours",
        f"{UNIT}cli/test_terminal.py::test_there_is_one_console",
    ],
    "Paths are quoted in commands": [f"{UNIT}cli/test_terminal.py::test_paths_in_commands_to_paste_are_quoted"],
    "`~/.potluck/host/metrics-key` opens": [
        f"{SERVICE}the_key_for_metrics_reads_them_and_opens_nothing_else",
        f"{UNIT}dashboard/test_pages.py::test_strangers_see_nothing_without_the_password",
    ],
    "Both are made of the token": [
        f"{MEETING}token.py::test_keys_differ_by_token_and_purpose",
        f"{CLAIMS}token_and_credential_are_in_no_file_but_their_own",
    ],
    "Scripts travel as bundles": [
        "tests/multiprocess/test_meeting_door.py::test_bundles_come_from_members_only_and_must_be_what_they_say"
    ],
    "A bundle is checked against its hash": [
        f"{MEETING}bundle.py::test_what_is_not_ours_is_refused_and_nothing_is_written",
        f"{MEETING}bundle.py::test_bombs_are_refused",
    ],
    "A run starts a file of its bundle": [
        f"{MEETING}scripts_of_a_bundle.py::test_a_script_outside_its_bundle_is_refused_by_host_and_machine"
    ],
    "A joined machine prints whose code": [
        f"{MEETING}scripts_of_a_bundle.py::test_whose_code_it_is_is_said_whenever_a_run_brings_code"
    ],
    "A machine's gate listens on": [f"{GATES}ports.py::test_a_machine_stands_in_for_others_of_its_own_runs_only"],
    "It asks the kernel who dials": [f"{CLAIMS}connections_of_other_users_of_this_computer_are_told_apart"],
    "Workers tell their gate": [f"{CLAIMS}sockets_for_workers_and_the_service_are_their_owners"],
    "Secrets on disk are in": [
        f"{CLAIMS}token_and_credential_are_in_no_file_but_their_own",
        f"{GATES}identity.py::test_it_is_made_once_and_only_its_owner_may_read_it",
    ],
    "The token is in no log": [
        f"{CLAIMS}token_and_credential_are_in_no_file_but_their_own",
        f"{MEETING}invitation.py::test_an_invitation_does_not_show_its_token_by_accident",
    ],
    "What you type after `join`": [f"{CLAIMS}a_line_may_come_from_stdin"],
    "The variable `POTLUCK_JOIN` may hold the line": [
        "tests/unit/meeting/test_join_variable.py::test_no_process_that_this_one_starts_inherits_the_line",
        "tests/containers/test_image.py::test_the_line_reaches_no_process_of_a_run",
    ],
    "Any machine that has joined may have": [
        f"{UNIT}doctor/test_probing.py::test_who_does_not_know_the_word_gets_nothing",
        f"{UNIT}doctor/test_probing.py::test_a_station_closes_its_port_when_told_to",
    ],
    "The questions are checked types": [f"{MEETING}visits.py::test_only_questions_of_the_doctor_are_carried"],
    "`potluck selftest` asks in the same way": [
        f"{UNIT}selftest/test_joined_run.py::test_the_script_imports_what_exists"
    ],
    "`potluck profile` asks in the same way": [
        f"{LAB}test_measuring_joined.py::test_all_joined_machines_are_measured_planned_for_and_held_to_it"
    ],
}
# What is said to be open: tests where there is something to hold, and none where the page only warns.
OPEN = {
    "Whoever has the line": [],
    "The host is trusted.": [f"{MEETING}pairs.py::test_a_relay_is_named_with_the_line_that_ends_it"],
    "Leaving takes a moment.": [
        f"{MEETING}roster.py::test_who_was_asked_to_leave_and_stays_is_overdue",
        NUMBERS,
    ],
    "Every member may read": [],
    "Values of `--env` are on disk": [f"{UNIT}report/test_secret_variables.py::test_no_page_or_table_shows_a_secret"],
    "Other users of the same computer": [
        f"{UNIT}engine/test_member_proof.py::test_nonsense_counts_for_nothing",
    ],
    "A plain run (": [
        "tests/multiprocess/test_plain.py::test_stock_scripts_run_unchanged_fail_once_stop_and_leave_a_sensible_folder"
    ],
    "`--direct` and NCCL": [f"{LAB}test_gates_lab.py::test_gradients_may_go_directly_and_that_is_said"],
    "Launches without a host": [
        f"{UNIT}engine/test_member_proof.py::test_an_entry_of_a_stranger_another_group_or_another_place_counts_for_nothing"
    ],
    "Sizes and times stay visible.": [],
    "Overload.": [OUTSIDER],
    "The dashboard speaks plain HTTP.": [
        f"{UNIT}dashboard/test_pages.py::test_wider_than_this_machine_means_a_password"
    ],
    "`potluck doctor --listen`": [f"{UNIT}doctor/test_probing.py::test_a_channel_refuses_another_token"],
}


def section(title):
    return PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]


def sentences():
    """All that is said of what listens and of what is protected."""
    for line in section("What listens where").splitlines()[2:]:
        if line.startswith("| "):
            yield line.removeprefix("| ")
    for paragraph in section("What is protected").strip().split("\n\n"):
        plain = re.sub(r"^\*\*([^*]+)\.\*\* ", "", paragraph).replace("**", "")
        yield from re.split(r"(?<=\.)\s+(?=[A-Z`])", plain)


@cache
def named_in(file):
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_sentence_has_tests_and_every_entry_a_sentence():
    said = list(sentences())
    assert len(said) > 50
    without = [one for one in said if not any(one.startswith(claim) for claim in PROTECTED)]
    assert without == ["The line that `potluck host` prints is wherever its output goes."]  # a warning
    assert [claim for claim in PROTECTED if not any(one.startswith(claim) for one in said)] == []
    bullets = re.findall(r"(?m)^- \*\*(.+)$", section("What is not protected"))
    assert [one for one in bullets if not any(one.startswith(claim) for claim in OPEN)] == []
    assert [claim for claim in OPEN if not any(one.startswith(claim) for one in bullets)] == []


def test_the_named_tests_exist():
    named = {test for tests in [*PROTECTED.values(), *OPEN.values()] for test in tests}
    missing = []
    for test in named:
        file, _, name = test.partition("::")
        if name not in named_in(file):
            missing.append(test)
    assert missing == []
