"""The unit tests that are for POSIX only, with the reason. On Windows they are skipped, and the report lists them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# These cannot be imported there.
MODULES = {
    "engine/test_collector.py": "its runs are files of the POSIX shim",
    "supervise/test_run_archive.py": "its runs are files of the POSIX shim",
    "supervise/test_attempt_file.py": "of the POSIX shim; tests/windows/test_claims.py is its like",
    "supervise/test_cgroups.py": "cgroups are Linux's",
    "supervise/test_compressed_log.py": "its logs are written by the POSIX shim",
    "supervise/test_step_limits.py": "limits of POSIX systems",
    "supervise/test_log_reader.py": "its logs are written by the POSIX shim",
    "engine/test_log_stream.py": "its logs are written by the POSIX shim",
    "supervise/test_end_record.py": "its records are written by the POSIX shim",
    "supervise/test_shim_limits.py": "of the POSIX shim",
    "cli/test_service.py": "its service is one of systemd; tests/windows/test_service.py has the other",
    "supervise/test_private_memory.py": "limits and signals of POSIX",
    "supervise/test_tree_walk.py": "links and owners of POSIX",
}

# By the beginning of their names.
TESTS = {
    "api/test_server_certificate.py::test_files_that": "compares paths of POSIX",
    "cli/test_apply.py::test_validate_needs_no_daemon": "compares paths of POSIX",
    "cli/test_import.py::test_an_expression": "a script stands for systemd-analyze",
    "cli/test_help.py::test_these_are_all": "has the commands of a service of systemd",
    "cli/test_help.py::test_every_other": "has the commands of a service of systemd",
    "cli/test_help.py::test_every_command_explains_itself_with_examples[service rollback": "a command of systemd",
    "cli/test_help.py::test_every_command_explains_itself_with_examples[service upgrade": "a command of systemd",
    "cli/test_text.py::test_times_are_local": "sets a time zone with tzset",
    "definition/test_shell.py::test_any_value": "runs shells",
    "definition/test_shell.py::test_integers": "runs shells",
    "definition/test_shell.py::test_random": "runs shells",
    "definition/test_shell.py::test_where_a_template": "runs shells",
    "engine/test_launch_spec.py::test_files_of_the_environment": "compares paths of POSIX",
    "engine/test_launch_spec.py::test_the_workspace": "compares paths of POSIX",
    "engine/test_secret_values.py::test_values_are_for": "modes of files",
    "engine/test_secret_values.py::test_sealed_texts": "reads the key, which DPAPI encrypts",
    "engine/test_secret_values.py::test_a_lost_or": "reads the key, which DPAPI encrypts",
    "engine/test_secret_values.py::test_a_key_that": "modes of files",
    "engine/test_step_rules.py::test_workspaces": "compares paths of POSIX",
    "engine/test_step_rules.py::test_a_workspace_is": "compares paths of POSIX",
    "engine/test_step_rules.py::test_artifacts_are": "compares paths of POSIX",
    "importers/test_systemd_timers.py::test_what_systemd": "a script stands for systemd-analyze",
    "sdk/test_address.py": "addresses of unix sockets",
    "supervise/test_descriptors.py": "limits of descriptors",
    "supervise/test_disk.py::test_ballast": "blocks and modes of POSIX file systems",
    "workflow/test_workflow.py::test_modules_are_named": "a path of imports of POSIX",
    "test_config.py::test_a_socket_path": "unix sockets",
    "test_config.py::test_a_problem_has": "compares paths of POSIX",
    "test_config.py::test_access_is": "compares paths of POSIX",
    "test_config.py::test_wrong_access": "compares paths of POSIX",
    "test_config.py::test_the_check_explains": "compares paths of POSIX",
    "test_config.py::test_what_a_reload": "compares paths of POSIX",
    "test_config.py::test_the_daemon_of_the_system": "users of POSIX",
    "test_config.py::test_check_config": "compares paths of POSIX",
    "test_config.py::test_defaults": "of POSIX; tests/windows/test_start.py is its like",
    "test_config.py::test_every_problem": "unix sockets",
    "test_config.py::test_flags": "compares paths of POSIX",
    "test_config.py::test_paths": "compares paths of POSIX",
    "test_config.py::test_the_database": "compares paths of POSIX",
    "test_config.py::test_the_state_directory": "users of POSIX",
    "test_failpoints.py::test_kill": "signals",
    "test_daemon_log.py::test_a_full_disk": "/dev/full",
    "test_daemon_log.py::test_the_journal": "unix sockets",
    "test_daemon_log.py::test_a_traceback": "unix sockets",
    "test_daemon_log.py::test_a_journal": "unix sockets",
    "test_daemon_log.py::test_a_file_that_was_moved": "a file keeps its name while it is open there",
    "test_masker.py::test_near_misses": "its clock of processor time is too coarse there",
    "test_systemd_notify.py::test_a_reload": "unix sockets",
    "test_systemd_notify.py::test_abstract": "unix sockets",
    "test_systemd_notify.py::test_states": "unix sockets",
    "test_systemd_notify.py::test_the_status_feeds": "unix sockets",
    "test_state_dir.py::test_a_directory_with": "modes of directories",
    "test_state_dir.py::test_a_place": "modes of directories",
    "file_watch/test_watched_paths.py::test_a_file_that_is": "its loop of events starts no processes",
    "file_watch/test_watched_paths.py::test_files_of_a_tree": "wine reports changes of a directory, but not below it",
    "file_watch/test_watched_paths.py::test_nothing_is_told": "wine reports changes of a directory, but not below it",
    "file_watch/test_watched_paths.py::test_paths_come": "wine reports changes of a directory, but not below it",
    "file_watch/test_watched_paths.py::test_what_is_not_there": "a watched directory stays until its watch ends",
}
FAKE_DAEMON = "the daemon of the test serves a unix socket; tests/windows has a real one on loopback"

for _name in (*MODULES, *TESTS):
    assert (HERE / _name.partition("::")[0]).exists(), f"tests/unit/conftest.py: {_name} was moved"

if sys.platform == "win32":
    collect_ignore = [str(HERE / each) for each in MODULES]

    def pytest_report_header() -> list[str]:
        return [f"not for Windows: tests/unit/{name}: {why}" for name, why in MODULES.items()]

    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        for item in items:
            if HERE not in item.path.parents:
                continue
            name = f"{item.path.relative_to(HERE).as_posix()}::{item.name}"
            reasons = [why for prefix, why in TESTS.items() if name.startswith(prefix)]
            if "daemon" in getattr(item, "fixturenames", ()):
                reasons.append(FAKE_DAEMON)
            if reasons:
                item.add_marker(pytest.mark.skip(reason=reasons[0]))
