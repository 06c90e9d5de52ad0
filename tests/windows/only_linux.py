"""A pytest plugin for a Windows Python: skips the unit tests that need Linux, each with its reason."""

import pytest

NEEDS_SED = "tries the printed fix, a command of Linux"
NEEDS_FORK = "forks, which Windows cannot"
NEEDS_TORCH = "starts a process that imports torch, which Windows goes without"
NEEDS_PATHS = "compares with a path of Linux"
NEEDS_DASHBOARD = "needs the packages of the dashboard"
NEEDS_A_RUN = "starts a run, which Windows itself refuses"
NEEDS_POSIX_FILES = "replaces or removes files that are open, which Windows refuses"

# Parts of test ids. Whole files that cannot be imported on Windows are in IGNORED.
SKIPPED = {
    "test_a_bad_line_is_named_with_its_file_and_a_fix_that_works": NEEDS_SED,
    "test_what_is_no_file_is_named_and_nobody_waits_for_it": "makes a named pipe",
    "test_a_killed_host_leaves_no_living_run": NEEDS_FORK,
    "test_a_forked_child_does_not_keep_the_lock": NEEDS_FORK,
    "test_a_file_that_a_full_disk_does_not_take_is_named": NEEDS_PATHS,
    "test_each_reason_has_its_words": NEEDS_PATHS,
    "test_the_dashboards_line_is_typable": NEEDS_PATHS,
    "test_a_missing_package_is_told_with_its_fix": NEEDS_PATHS,
    "test_a_folder_on_a_full_disk_is_told_of_with_its_machine": "reads statvfs",
    "test_threads_may_replace_the_same_file_at_once": NEEDS_POSIX_FILES,
    "test_a_host_says_that_a_run_goes_on_and_when_no_more": NEEDS_POSIX_FILES,
    "test_exchange_options.py::test_a_wrong_value_is_refused_with_the_fix": NEEDS_A_RUN,
    "test_a_command_tells_its_options_to_the_script_on_every_machine": NEEDS_A_RUN,
    "test_a_plain_script_has_no_exchange_to_choose": NEEDS_A_RUN,
    "test_two_processes_read_the_same_bits": NEEDS_TORCH,
    "test_programs_that_do_not_answer_are_told_in_a_sentence": "starts programs of Linux",
    "test_a_look_is_within_what_there_is_and_too_soon_is_none": "reads /proc in less than 50 ms",
    "test_linux_tells_how_fast_this_process_sends": "reads /proc",
    "test_sample_configs.py": "reads models and datasets, which need torch",
    "machine/test_cards.py": "stands in for NVIDIA's library on Linux",
    "test_the_page_has_a_table_of_cards": NEEDS_DASHBOARD,
    "test_pages.py": NEEDS_DASHBOARD,
    "test_unit_file.py": "is about systemd",
}
IGNORED = {
    "tests/unit/doctor/test_doctor_command.py": "imports resource; the doctor itself is started by test_doctor.py here",
    "tests/unit/doctor/test_fix_script.py": "imports tree-sitter; its scripts are the same text on every system",
    "tests/unit/doctor/test_probing.py": "dials 127.0.0.x: wine's sockets do not end a read when they are closed",
    "tests/unit/report/test_presence.py": NEEDS_DASHBOARD,
    "tests/unit/report/test_view.py": "imports resource",
    "tests/unit/report/test_plain_end.py": "imports the host, which needs resource",
    "tests/unit/report/test_secret_variables.py": "imports the host, which needs resource",
}


def pytest_collection_modifyitems(items):
    for item in items:
        for words, reason in SKIPPED.items():
            if words in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=reason))
