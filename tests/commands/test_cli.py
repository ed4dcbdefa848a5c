"""The command line as a person meets it: every test is a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest

from membench import commands
from membench.cli import VERBS, cli
from membench.engine.protocols.protocol import PROTOCOLS
from membench.records.record import SCHEMA, Record

QUICK = ("--task", "bigram", "-T", "N=6", "--protocol", "quick", "-P", "steps=5", "--seeds", "2")


def test_run_then_again_then_leaderboard(membench: Any, tmp_path: Path) -> None:
    first = membench("run", "--model", "lookup", *QUICK)
    assert first.returncode == 0, first.stderr
    assert "2 trials run, 0 reused" in first.stdout
    assert all(word in first.stdout for word in ("lookup", "zero-", "chance", "membench leaderboard results"))
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.json")}
    again = membench("run", "--model", "lookup", *QUICK)
    assert "0 trials run, 2 reused" in again.stdout
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.json")}
    board = membench("leaderboard", "results")
    assert board.returncode == 0
    assert "lookup" in board.stdout
    assert "not ranked" in " ".join(board.stdout.split())


def test_overwrite_runs_again_and_dry_run_runs_nothing(membench: Any, tmp_path: Path) -> None:
    words = ("run", "--model", "lookup", *QUICK, "--out", "here")
    dry = membench(*words, "--dry-run")
    assert "2 of 2 trials would run" in dry.stdout
    assert not (tmp_path / "here").exists()
    membench(*words)
    assert "0 of 2 trials would run" in membench(*words, "--dry-run").stdout
    assert "2 trials run" in membench(*words, "--overwrite").stdout
    assert [row["runs"] for row in json.loads(membench(*words, "--dry-run", "--json").stdout)] == [False, False]


def test_json_everywhere(membench: Any, plugin_file: Path) -> None:
    ran = json.loads(membench("run", "--model", "toy", *QUICK, "--plugin", str(plugin_file), "--json").stdout)
    assert ran["rows"][0]["architecture"] == "toy"
    (table,) = json.loads(membench("leaderboard", "results", "--json").stdout)["tables"]
    assert table["rows"][0]["accuracy"] == ran["rows"][0]["accuracy"]
    assert {row["name"] for row in json.loads(membench("models", "--json").stdout)} >= {"aot", "lookup"}
    assert {row["name"] for row in json.loads(membench("tasks", "--json").stdout)} >= {"bigram", "ngram"}
    assert {row["status"] for row in json.loads(membench("plugins", "--json").stdout)} == {"loaded"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "--model", "aott", "--task", "bigram"], "unknown architecture 'aott'; did you mean 'aot'?"),
        (["run", "--model", "aot", "--task", "bigrams"], "unknown task 'bigrams'; did you mean 'bigram'?"),
        (["run", "--model", "aot", "--task", "bigram", "--protocol", "quik"], "did you mean 'quick'?"),
        (["run", "--model", "aot", "--task", "bigram", "-M", "h=3"], "unknown option of aot 'h'; did you mean 'H'?"),
        (["run", "--model", "aot", "--task", "bigram", "-M", "d=ten"], "d=ten: a whole number of at least 1"),
        (["run", "--model", "aot", "--task", "bigram", "-M", "H=-1"], "H=-1: a whole number of at least 0"),
        (["run", "--model", "aot", "--task", "bigram", "-M", "d_h=12"], "d_h=12"),
        (["run", "--model", "aot", "--task", "bigram", "-M", "H=5:1"], "5:1 is empty"),
        (["run", "--model", "aot", "--task", "bigram", "-T", "T0=2501"], "T0=2501 is more than"),
        (["run", "--model", "aot", "--task", "bigram", "--seeds", "none"], "--seeds none"),
        (["run", "--model", "aot", "--task", "bigram", "--device", "tpu"], "device 'tpu' is not one of cpu, cuda, mps"),
        (["run", "--model", "lookup", *QUICK, "--kernel", "on"], "this architecture has no kernel"),
        (["run", "--model", "lookup", *QUICK[:4], "--protocol", "construct"], "'lookup' has no construction"),
        (["run", "--model", "aot"], "Missing option '--task'"),
        (["run", "--model", "aot", "--task", "bigram", "--plugin", "no.py"], "does not exist"),
        (["run", "--model", "aot", "--task", "bigram", "--block", "nobody"], "unknown plugin to block 'nobody'"),
        (["models", "aott"], "did you mean 'aot'?"),
        (["leaderboard", "results"], "'results' does not exist"),
        (["leaderbord"], "No such command"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_exit_2(membench: Any, tmp_path: Path, words: list[str], sentence: str) -> None:
    done = membench(*words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_unwritable_folder_is_refused_before_anything_runs(membench: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    done = membench("run", "--model", "lookup", *QUICK, "--out", "file")
    assert done.returncode == 2
    assert "cannot write records to 'file'" in done.stderr
    assert (tmp_path / "file").read_text() == "precious"


def test_a_record_of_a_newer_membench_is_refused_and_the_rest_is_shown(membench: Any, tmp_path: Path) -> None:
    membench("run", "--model", "lookup", *QUICK)
    newer = next((tmp_path / "results").rglob("*-s0.json"))
    text = json.dumps({**json.loads(newer.read_text()), "schema": SCHEMA + 1})
    newer.write_text(text)
    for words in ((), ("--overwrite",)):
        done = membench("run", "--model", "lookup", *QUICK, *words)
        assert done.returncode == 2
        assert "upgrade membench" in done.stderr
        assert newer.name in done.stderr
    board = membench("leaderboard", "results", "--json")
    assert board.returncode == 0
    assert newer.name in board.stderr
    assert json.loads(board.stdout)["tables"][0]["rows"][0]["seeds"] == 1
    assert newer.read_text() == text


def test_foreign_files_among_the_records_are_named_and_left_alone(membench: Any, tmp_path: Path) -> None:
    membench("run", "--model", "lookup", *QUICK)
    (tmp_path / "results" / "cut.json").write_text('{"schema": 1, "id"')
    (tmp_path / "results" / "foreign.json").write_text("[1, 2]")
    done = membench("leaderboard", "results")
    assert done.returncode == 0
    assert "lookup" in done.stdout
    assert "cut.json" in done.stderr
    assert "foreign.json" in done.stderr
    assert (tmp_path / "results" / "cut.json").exists()


def test_trials_that_fail_are_recorded_and_the_others_go_on(membench: Any, tmp_path: Path, plugin_file: Path) -> None:
    words = ("run", "--model", "toy", *QUICK, "--plugin", str(plugin_file), "-M", "fault=none,nan")
    done = membench(*words)
    assert done.returncode == 3
    assert "2 of 4 trials failed" in done.stderr
    assert "NaN" in done.stderr
    records = [json.loads(path.read_text()) for path in (tmp_path / "results").rglob("*.json")]
    assert sorted(record["status"] for record in records) == ["complete", "complete", "failed", "failed"]
    assert "2 trials run, 2 reused" in membench(*words).stdout  # only what failed is tried again


def test_a_broken_plugin_is_a_row_and_stops_nobody(membench: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import not_there")
    listed = membench("plugins", "--plugin", str(broken))
    assert listed.returncode == 0
    assert "failed" in listed.stdout
    assert "ModuleNotFoundError" in listed.stdout
    assert membench("run", "--model", "lookup", *QUICK, "--plugin", str(broken)).returncode == 0
    own = membench("run", "--model", "broken", *QUICK, "--plugin", str(broken))
    assert own.returncode == 3
    strict = membench("plugins", "--plugin", str(broken), MEMBENCH_STRICT="1")
    assert "ModuleNotFoundError" in strict.stderr


def test_ctrl_c_keeps_what_is_finished_and_the_same_command_continues(membench: Any, tmp_path: Path) -> None:
    # a distribution is never memorised exactly, so that the longer of two trials cannot end early: it takes minutes
    words = ["run", "--model", "aot", "--task", "low-entropy", "-T", "N=6", "-M", "d=4", "-M", "H=1", "--seeds", "1"]
    words += ["--jobs", "1", "--kernel", "off", "--protocol", "quick", "-P", "steps=20,5000000"]
    process = subprocess.Popen([sys.executable, "-m", "membench.cli", *words], cwd=tmp_path, stderr=subprocess.PIPE,
                               start_new_session=True, text=True)  # fmt: skip
    finished = wait_for_one(tmp_path / "results")
    time.sleep(1)  # the other one is on its way
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "finished trials are kept" in stderr
    assert "Traceback" not in stderr
    assert list((tmp_path / "results").rglob("*.json")) == [finished]
    again = json.loads(membench(*words, "--dry-run", "--json").stdout)
    assert sorted(row["runs"] for row in again) == [False, True]


def wait_for_one(folder: Path) -> Path:
    """The first record below a folder, as soon as it is there."""
    for _ in range(600):
        found = list(folder.rglob("*.json"))
        if found:
            return found[0]
        time.sleep(0.1)
    raise AssertionError("no trial finished within a minute")


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["run", "--help"],
        ["models"],
        ["tasks", "bigram"],
        ["plugins"],
        ["run", "--dry-run", "--model", "aot", "--task", "bigram"],
    ],
)
def test_help_listings_and_plans_import_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    script = (
        "import sys\nfrom membench.cli import cli\n"
        f"cli.main({words!r}, standalone_mode=False)\n"
        "heavy = [m for m in ('torch', 'pandas', 'matplotlib', 'scipy') if m in sys.modules]\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_the_help_of_no_verb_imports_anything_heavy(tmp_path: Path) -> None:
    words = [[verb, "--help"] for verbs in VERBS.values() for verb in verbs]
    script = (
        f"import sys\nfrom membench.cli import cli\nfor words in {words!r}:\n"
        "    cli.main(words, standalone_mode=False)\n"
        "    heavy = [m for m in ('torch', 'pandas', 'matplotlib', 'scipy') if m in sys.modules]\n"
        "    assert not heavy, (words, heavy)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_every_verb_that_prints_a_table_can_print_json_instead() -> None:
    context = click.Context(cli)
    for verb in cli.list_commands(context):
        command = cli.get_command(context, verb)
        assert command is not None
        parts = list(command.commands.values()) if isinstance(command, click.Group) else [command]
        for part in parts:
            has = any("--json" in parameter.opts for parameter in part.params)
            assert has or verb in ("report", "new")  # which write files and print no table


def test_help_loads_no_verb_and_no_numpy(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom membench.cli import cli\ncli.main(['--help'], standalone_mode=False)\n"
        "loaded = [m for m in sys.modules if m in ('numpy', 'rich', 'pluggy') or m.startswith('membench.commands')]\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_help_has_every_verb_in_a_group_with_its_whole_summary(membench: Any) -> None:
    text = membench("--help", COLUMNS="80").stdout
    context = click.Context(cli)
    files = {path.stem for path in Path(commands.__file__).parent.glob("*.py")}
    assert set(cli.list_commands(context)) <= files
    for group, verbs in VERBS.items():
        assert f"\n{group}:\n" in text
        for verb, summary in verbs.items():
            assert f"  {verb:<11}  {summary}\n" in text
            command = cli.get_command(context, verb)
            assert command is not None
            assert (command.help or "").partition("\n")[0] == summary


@pytest.mark.parametrize("verb", [verb for group in VERBS.values() for verb in group])
def test_every_verb_that_computes_can_be_called_without_the_command_line(verb: str) -> None:
    listings = ("models", "tasks", "plugins")
    assert verb in listings or find_spec(f"membench.verbs.{verb}")


@pytest.mark.parametrize("verb", ["run", "sweep", "capacity"])
def test_the_help_for_a_protocol_names_all_of_them(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    (option,) = [one for one in command.params if one.name == "protocol"]
    assert isinstance(option, click.Option)
    assert option.help == f"How weights are found: {', '.join(PROTOCOLS)}."


@pytest.mark.parametrize("verb", ["capacity", "bounds"])
def test_verbs_for_one_model_do_not_offer_several(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    helps = {one.opts[0]: one.help or "" for one in command.params if isinstance(one, click.Option)}
    assert "single" in helps["--model"]
    assert "single" in helps["--task"]
    assert "all" not in helps["--model"] + helps["--task"]


def test_a_leaderboard_never_imports_torch(tmp_path: Path) -> None:
    from samples import make_record

    for seed in range(100):
        (tmp_path / f"{seed}.json").write_text(make_record(seed=seed).to_json())
    script = (
        "import sys\nfrom membench.cli import cli\n"
        f"cli.main(['leaderboard', {str(tmp_path)!r}], standalone_mode=False)\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "100 seeds" in done.stdout


def test_output_for_a_pipe_has_no_colour_and_fits_80_columns(membench: Any) -> None:
    membench("run", "--model", "aot", *QUICK)
    done = membench("leaderboard", "results", COLUMNS="80")
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_lists_failed_trials_with_reasons_and_notes(membench: Any, plugin_file: Path) -> None:
    words = ("run", "--plugin", str(plugin_file), "--model", "toy", "-M", "fault=none,raise", "--task", "bigram")
    done = membench(*words, "-T", "N=4", "--protocol", "quick", "-P", "steps=2", "--seeds", "1", "--json",
                    "--executor", "inline")  # fmt: skip
    assert done.returncode == 3
    found = json.loads(done.stdout)
    (failed,) = found["failed"]
    assert (failed["model"], failed["config"]["fault"], failed["seed"]) == ("toy", "raise", 0)
    assert "broken on purpose" in failed["error"]
    assert Record.from_json((plugin_file.parent / failed["record"]).read_text("utf-8")).error == failed["error"]
    assert "failed: toy on bigram, seed 0" in done.stderr
    assert all(isinstance(note, str) for note in found["notes"])


@pytest.mark.parametrize(
    ("file", "words"), [("click.py", ["--help"]), ("own_plugin.py", ["plugins", "--plugin", "own_plugin.py"])]
)
def test_ctrl_c_during_imports_is_no_traceback(tmp_path: Path, file: str, words: list[str]) -> None:
    interrupt = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\n"
    (tmp_path / file).write_text(interrupt, encoding="utf-8")  # `-m` looks for modules in the working folder first
    done = subprocess.run([sys.executable, "-m", "membench", *words], capture_output=True, text=True, cwd=tmp_path,
                          timeout=120, check=False)  # fmt: skip
    assert done.returncode == 130
    (line,) = filter(None, done.stderr.splitlines())
    assert line.startswith("membench: interrupted")
