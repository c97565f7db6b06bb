"""Every command and every option of pytest has a test in `make test` that runs it; what that leaves out runs elsewhere."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from pytest_cgins import plugin
from pytest_cgins.app import cli
from pytest_cgins.core.verdict import Reason
from tests.adversarial.specimens import ADVERSARIAL, collect
from tests.planted.operators import OPERATORS

TESTS = Path(__file__).parent
ROOT = TESTS.parent
OF_GPUS = {"initcheck", "l2-carve-out", "not-capturable", "synccheck"}
"""Reasons that only a kernel on a GPU can give: tests/gpu."""
LEFT_OUT = re.compile(r"^(pytestmark = )?\[?(pytest\.mark\.gpu, )?pytest\.mark\.(exam|gpu|skip)\b")
"""Marks of what `make test` does not run; those of single parameters are none."""

COMMANDS = {
    "annotate": "pull_request/test_annotations.py::test_command_prints_them",
    "bench-model": "app/whole_model/test_bench_model.py::test_right_kernels_change_nothing",
    "build": "building/test_commands.py::test_build_all",
    "cache ls": "building/test_cache_space.py::test_commands",
    "cache path": "building/test_cache_space.py::test_commands",
    "cache prune": "building/test_cache_space.py::test_commands",
    "calibrate": "gate/test_calibrate.py::test_from_the_command_line_to_the_verdict",
    "compare-env": "plugin/test_environments.py::test_the_command_compares_with_the_same_sources",
    "completion": "app/test_cli.py::test_bash_completes_commands_options_and_files",
    "comment": "regenerate/test_whole_loop.py::test_a_broken_kernel_is_repaired_by_a_pull_request",
    "doctor": "app/commands/test_doctor.py::test_table",
    "evidence ablate": "regenerate/profiling/test_commands.py::test_ablation_of_three_methods",
    "evidence bench": "regenerate/profiling/test_commands.py::test_bench_has_intervals_and_tells_what_is_not_there",
    "evidence env": "regenerate/profiling/test_commands.py::test_env_tells_what_there_is_and_what_that_costs",
    "evidence profile": "regenerate/profiling/test_commands.py::test_profile_of_a_cpu_kernel_says_what_it_lacks",
    "evidence roofline": "regenerate/profiling/test_commands.py::test_roofline_without_counters",
    "evidence sass": "regenerate/profiling/test_commands.py::test_sass_of_an_architecture_that_is_not_here",
    "evidence tidy": "regenerate/profiling/test_commands.py::test_tidy_is_told_when_it_is_not_installed",
    "export flashinfer-bench": "recording/importers/test_flashinfer.py::test_export_and_import_give_the_same_calls",
    "export torch-library": "building/test_export.py::test_own_ops",
    "generate": "regenerate/test_commands.py::test_a_project_is_made_of_a_benchmark_file_and_gets_another_kernel",
    "help": "app/test_cli.py::test_commands_of_pipelines_are_not_in_the_first_help",
    "history": "report/test_trend.py::test_the_command_prints_tables",
    "import backendbench": "recording/importers/test_backendbench.py::test_a_text_becomes_traces",
    "import flashinfer-bench": "recording/importers/test_flashinfer.py::test_workloads_become_traces",
    "import flashinfer-dump": "recording/importers/test_flashinfer_dump.py::test_definitions_become_traces",
    "import gins": "recording/importers/test_gins.py::test_the_example_file",
    "import kernelbench": "recording/importers/test_kernelbench.py::test_a_problem_becomes_a_trace_of_its_model",
    "import pt": "recording/importers/test_pt_files.py::test_pairs_of_each_form",
    "import refpy": "recording/importers/test_refpy.py::test_arguments_of_a_kernel",
    "import robustkbench": "recording/importers/test_robustkbench.py::test_forward_and_backward_in_every_configuration",
    "import solexecbench": "recording/importers/test_solexecbench.py::test_workloads_become_traces",
    "init": "app/init/test_init.py::test_a_repository_is_gated_as_init_wrote_it",
    "merge": "plugin/test_shard.py::test_reports_of_parts_merge_to_that_of_the_whole",
    "methods check": "regenerate/methods/test_commands.py::test_check",
    "methods choice": "regenerate/methods/test_commands.py::test_offer_and_choice",
    "methods ls": "regenerate/methods/test_commands.py::test_list",
    "methods offer": "regenerate/methods/test_commands.py::test_offer_and_choice",
    "methods results": "regenerate/methods/test_commands.py::test_results",
    "methods sass": "regenerate/methods/test_commands.py::test_sass",
    "methods show": "regenerate/methods/test_commands.py::test_show",
    "profile": "recording/test_profile.py::test_the_command_prints_ops_by_cost",
    "proposal apply": "regenerate/test_proposal_commands.py::test_apply",
    "proposal rebase": "regenerate/test_proposal_rebase.py::test_a_base_that_moved_elsewhere",
    "proposal show": "regenerate/test_proposal_commands.py::test_show",
    "proposal verify": "regenerate/test_proposal_commands.py::test_verify",
    "pull-request close": "pull_request/test_app_token.py::test_status_and_close_take_it_too",
    "pull-request open": "regenerate/test_whole_loop.py::test_a_broken_kernel_is_repaired_by_a_pull_request",
    "pull-request status": "pull_request/test_app_token.py::test_status_and_close_take_it_too",
    "record": "app/commands/test_record.py::test_a_script_is_recorded_as_python_would_run_it",
    "report": "regenerate/test_whole_loop.py::test_a_broken_kernel_is_repaired_by_a_pull_request",
    "run": "regenerate/test_commands.py::test_a_project_is_made_of_a_benchmark_file_and_gets_another_kernel",
    "runs export": "regenerate/test_commands.py::test_a_project_is_made_of_a_benchmark_file_and_gets_another_kernel",
    "runs ls": "regenerate/test_commands.py::test_a_project_is_made_of_a_benchmark_file_and_gets_another_kernel",
    "runs resume": "plugin/test_regenerate.py::test_a_broken_kernel_becomes_a_proposal",
    "runs show": "regenerate/test_commands.py::test_a_project_is_made_of_a_benchmark_file_and_gets_another_kernel",
    "runs skill": "regenerate/test_commands.py::test_the_skill_is_printed",
    "runs verifiers": "regenerate/search/test_verifier_scores.py::test_the_command_prints_a_table",
    "schema": "building/test_commands.py::test_schema",
    "suite": "regenerate/test_suite.py::test_a_suite_of_recorded_answers",
    "summary": "app/commands/test_report.py::test_markdown_and_counts_are_printed",
    "traces audit": "verify/test_audit.py::test_the_command_prints_json",
    "traces diff": "packs/test_difference.py::test_the_command_prints_tables_and_json",
    "traces explain": "verify/test_explain.py::test_the_command_takes_a_case_s_name",
    "traces gc": "recording/test_maintenance.py::test_blobs_that_no_trace_refers_to_are_removed",
    "traces judge": "regenerate/test_task_judge.py::test_the_command_names_what_is_flagged_first",
    "traces ls": "app/commands/test_record.py::test_ls_lists_packs_and_reports_damaged_ones",
    "traces show": "app/commands/test_record.py::test_show_lists_traces",
    "traces verify": "app/commands/test_record.py::test_verify_replays_every_trace",
}
"""The test that runs a command as users do, on what it is for, and sees it end well."""

OPTIONS = {
    "--cgins": "plugin/test_regenerate.py::test_a_broken_kernel_becomes_a_proposal",
    "--cgins-allow-fewer": "plugin/test_coverage.py::test_fewer_cases_are_told_elsewhere",
    "--cgins-allow-weaker": "plugin/test_coverage.py::test_a_weaker_gate_fails_in_ci_until_a_person_accepts_it",
    "--cgins-arch": "plugin/test_compile_only.py::test_an_edit_that_spills_fails_and_its_reverse_passes",
    "--cgins-base-env": "plugin/test_environments.py::test_what_another_environment_changes_is_told_of_each_kernel",
    "--cgins-baseline": "regenerate/test_whole_loop.py::test_a_broken_kernel_is_repaired_by_a_pull_request",
    "--cgins-budget": "plugin/test_regenerate.py::test_a_broken_kernel_becomes_a_proposal",
    "--cgins-compare": "plugin/test_times.py::test_an_unchanged_kernel_is_not_timed_against_itself",
    "--cgins-compile-only": "plugin/test_compile_only.py::test_an_edit_that_spills_fails_and_its_reverse_passes",
    "--cgins-device": "plugin/test_device.py::test_a_device_that_was_asked_for_is_no_skip",
    "--cgins-durations": "plugin/test_shard.py::test_parts_are_cut_by_how_long_cases_took",
    "--cgins-env": "plugin/test_environments.py::test_what_does_not_go_together_is_refused",
    "--cgins-executor": "regenerate/test_executor.py::test_a_killed_node_costs_no_attempt",
    "--cgins-history": "plugin/test_history.py::test_timed_cases_are_appended",
    "--cgins-history-always": "plugin/test_history.py::test_other_branches_are_not",
    "--cgins-isolation": "plugin/test_isolation.py::test_without_isolation_kernels_run_in_pytest_s_process",
    "--cgins-jobs": "plugin/test_regenerate.py::test_a_broken_kernel_becomes_a_proposal",
    "--cgins-json": "plugin/test_outcomes.py::test_weak_fails_when_strict",
    "--cgins-llm": "plugin/test_regenerate.py::test_a_broken_kernel_becomes_a_proposal",
    "--cgins-log-level": "plugin/test_log_level.py::test_levels",
    "--cgins-model": "plugin/test_regenerate.py::test_a_broken_kernel_becomes_a_proposal",
    "--cgins-no-timing": "plugin/test_regenerate.py::test_a_broken_kernel_becomes_a_proposal",
    "--cgins-opcheck": "plugin/test_operators.py::test_items_are_chosen_by_their_names",
    "--cgins-policy": "plugin/test_regenerate.py::test_a_broken_kernel_becomes_a_proposal",
    "--cgins-pr": "regenerate/test_whole_loop.py::test_a_broken_kernel_is_repaired_by_a_pull_request",
    "--cgins-probes": "plugin/test_regenerate.py::test_a_broken_kernel_becomes_a_proposal",
    "--cgins-regenerate": "plugin/test_regenerate.py::test_a_broken_kernel_becomes_a_proposal",
    "--cgins-runs": "plugin/test_regenerate.py::test_a_broken_kernel_becomes_a_proposal",
    "--cgins-resume": "plugin/test_earlier_verdicts.py::test_a_killed_run_goes_on",
    "--cgins-sandbox": "plugin/test_sandbox.py::test_kernels_run_in_the_sandbox",
    "--cgins-sanitize": "plugin/test_regenerate.py::test_a_broken_kernel_becomes_a_proposal",
    "--cgins-seed": "plugin/test_full_run.py::test_messages_say_what_where_and_how_to_repeat",
    "--cgins-shard": "plugin/test_shard.py::test_reports_of_parts_merge_to_that_of_the_whole",
    "--cgins-store": "plugin/test_earlier_verdicts.py::test_only_what_changed_is_run",
    "--cgins-store-days": "plugin/test_earlier_verdicts.py::test_old_verdicts_are_not_taken",
    "--cgins-store-write": "plugin/test_earlier_verdicts.py::test_workers_take_and_the_controller_keeps",
    "--cgins-strict": "plugin/test_outcomes.py::test_weak_fails_when_strict",
    "--cgins-suite-tests": "plugin/test_times.py::test_an_unchanged_kernel_is_not_timed_against_itself",
    "--cgins-timeout": "plugin/test_outcomes.py::test_hanging_kernel_costs_its_limit_twice_at_most",
}
"""The same of pytest's options: the test runs pytest with it, and sees that it does what it is for."""
# --cgins-sanitize: on a CPU that it leaves such kernels alone; on a GPU in gpu/test_sanitize_gpu.py.


def leaves(parser: argparse.ArgumentParser, words: str = "") -> Iterator[str]:
    """Commands, without those that only have others below them."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield words
    for action in nested:
        for word, child in action.choices.items():
            yield from leaves(child, f"{words} {word}".strip())


class Parser:
    """Stands for pytest's parser and its groups, and keeps the options that are declared."""

    def __init__(self) -> None:
        self.options: list[str] = []

    def getgroup(self, *_: str) -> Parser:
        return self

    def addoption(self, *names: str, **_: object) -> None:
        self.options += [name for name in names if name.startswith("--")]

    def addini(self, *_: object, **__: object) -> None:
        """No option."""


def test_every_command_has_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is new, or gone, fails here until its test is named."""
    parsers: list[argparse.ArgumentParser] = []

    def keep(self: argparse.ArgumentParser, *_: object) -> None:
        parsers.append(self)
        raise SystemExit

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", keep)
    with pytest.raises(SystemExit):
        cli.main(["completion"])
    assert sorted(leaves(parsers[0])) == sorted(COMMANDS)


def test_every_option_has_a_run() -> None:
    """So does an option of pytest."""
    parser = Parser()
    plugin.pytest_addoption(parser)  # type: ignore[arg-type]
    assert sorted(parser.options) == sorted(OPTIONS)


@pytest.mark.parametrize(("words", "test"), [*COMMANDS.items(), *OPTIONS.items()])
def test_the_run_is_there(words: str, test: str) -> None:
    """The named test is part of `make test`, and it, or what it uses of its file, has the words."""
    file, _, name = test.partition("::")
    names = definitions(TESTS / file)
    assert name in names, f"{file} has no {name}"
    assert not any(map(LEFT_OUT.search, marks(names, name))), f"{name} is not run by make test"
    said = set(texts(names, name))
    missing = [word for word in words.split() if not any(is_said(word, text) for text in said)]
    assert missing == []


def test_a_test_without_the_words_is_found_out() -> None:
    """The look at a test's text bites: where a command is not run, its words are missing."""
    names = definitions(TESTS / "regenerate" / "test_commands.py")
    said = set(texts(names, "test_the_skill_is_printed"))
    assert any(is_said("skill", text) for text in said)
    assert not any(is_said("export", text) for text in said)
    exam = marks(names, "test_a_run_by_hand_finishes_its_project_when_it_is_resumed")
    assert any("exam" in mark for mark in exam)


def is_said(word: str, text: str) -> bool:
    """Whether a text is a word of a command line, or a command line with it: prose has the word as well."""
    return text == word or re.match(rf"(.*\bcgins (.* )?)?{re.escape(word)}(=|$)", text) is not None


@cache
def definitions(file: Path) -> dict[str, ast.stmt]:
    """What a module has at its top, by name."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            named = [part for target in node.targets for part in ast.walk(target)]
            found |= {part.id: node for part in named if isinstance(part, ast.Name)}
    return found


def marks(names: dict[str, ast.stmt], name: str) -> list[str]:
    """Marks of a test, and of its whole file."""
    node = names[name]
    assert isinstance(node, ast.FunctionDef)
    whole = [ast.unparse(names["pytestmark"])] if "pytestmark" in names else []
    return [*map(ast.unparse, node.decorator_list), *whole]


def texts(names: dict[str, ast.stmt], name: str) -> Iterator[str]:
    """Texts in a definition, and in those of its file that it uses: helpers, fixtures, constants."""
    todo, seen = [name], {name}
    while todo:
        own, used = contents(names[todo.pop()])
        yield from own
        todo += (new := (used & names.keys()) - seen)
        seen |= new


@cache
def contents(node: ast.stmt) -> tuple[frozenset[str], frozenset[str]]:
    """Texts and members of `Reason` in a definition, and all names that it uses."""
    own, used = set(), set()
    for part in ast.walk(node):
        match part:
            case ast.Constant(value=str(text)) | ast.Attribute(value=ast.Name(id="Reason"), attr=text):
                own.add(text)
            case ast.Name(id=name) | ast.arg(arg=name):
                used.add(name)
    return frozenset(own), frozenset(used)


def test_what_make_test_leaves_out_runs_elsewhere() -> None:
    """A job of the workflow runs each folder's exam, after each change and each night; CI names what it leaves out."""
    text = (ROOT / ".github/workflows/exam.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    parts = workflow["jobs"]["exam"]["strategy"]["matrix"]["part"]
    run = sorted(name for part in parts for name in part.split())
    there = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert run == sorted(f"tests/{name}" for name in there - {"gpu"})
    assert 'run: make test-exam EXAM="$PART"' in text
    begins = workflow[True]  # `on`, as YAML 1.1 reads it
    assert "cron" in begins["schedule"][0]
    for event in ("push", "pull_request"):
        assert {"pytest_cgins/**", "tests/**"} <= set(begins[event]["paths"])
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(target in ci for target in re.findall(r"(?m)^(test-(?:exam|gpu)):", makefile))


def test_every_reason_is_given_in_make_test() -> None:
    """Each reason of a verdict is expected by a test that every change runs, or by a kernel that it gates."""
    files = set(TESTS.rglob("test_*.py")) - {Path(__file__)}
    tested = {text for file in files for text in expected(definitions(file))}
    tested |= {word for one in collect(ADVERSARIAL) if "always" in one.flags for word in one.caught_by}
    # These are what run/test_operator_checks.py expects.
    tested |= {word for one in OPERATORS.values() for word in one.finds.values()}
    missing = {
        one.value
        for one in Reason
        if not {one.value, one.name} & tested and not any(f"({one.value})" in text for text in tested)
    }
    assert missing == OF_GPUS


def expected(names: dict[str, ast.stmt]) -> Iterator[str]:
    """Texts of a file's tests that every change runs, and members of `Reason` that they name."""
    for name in names:
        if name.startswith("test_") and not any(map(LEFT_OUT.search, marks(names, name))):
            yield from texts(names, name)
