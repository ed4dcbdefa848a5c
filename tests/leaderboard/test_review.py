"""Submissions that something is wrong with: one sentence says what, and the exit code that it failed."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from boards import track_records
from click.testing import CliRunner

from membench.cli import cli
from membench.engine.execution import Execution
from membench.errors import NOT_ALL_VERIFIED, UsageError
from membench.execute.driver import execute
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan
from membench.plan.trial import Point
from membench.records.record import Record
from membench.records.store import Entry, Store
from membench.verify.folder import MAX_FILES, check_folder
from membench.verify.submission import MANIFEST, gather, summarise, write
from membench_leaderboard import review as reviewing
from membench_leaderboard.review import SUBMISSIONS, Review, changed, comment_text, exit_code, review

SHORT = ["steps=20", "rounds=1", "lr=0.03"]  # a rate that is given needs no probes
PLUGIN = """
from dataclasses import dataclass
from membench.api import Architecture, hookimpl

@dataclass(frozen=True)
class Config:
    pass

def build(shape, config):
    import torch
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.zeros(shape.vocab, shape.vocab, shape.answers))
        def forward(self, tokens):
            return self.table[tokens[:, 0], tokens[:, 1]]
    return Model()

@hookimpl
def membench_architectures():
    return [Architecture(name="pairs", summary="a table over pairs", reference="", config=Config, build=build)]
"""


def submission(out: Path, selection: Selection | None = None, **words: Any) -> Path:
    """Two honest seeds as `membench submit` leaves them."""
    registry = Registry(selection or Selection())
    request = Request(**{"models": ["lookup"], "tasks": ["bigram"], "task_options": ["N=6"], "seeds": (0, 1),
                         "protocol_options": SHORT, **words})  # fmt: skip
    execute(plan(registry, request), Store(out / "results"), registry, Execution(executor="inline", keep_weights=True))
    entries, _ = gather([out / "results"], False)
    write(entries, out / SUBMISSIONS / "mine", summarise(entries))
    return out / SUBMISSIONS / "mine"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return submission(tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    copy = tmp_path / SUBMISSIONS / "mine"
    shutil.copytree(made, copy)
    return copy


def records(folder: Path) -> list[Path]:
    return list(Store(folder).files())


def edit(folder: Path, change: Callable[[dict[str, Any]], None], *, identified: bool = True) -> None:
    """Change every record, with an id and a manifest that agree: whoever lies can do that too."""
    for path in records(folder):
        data = json.loads(path.read_text("utf-8"))
        change(data)
        if identified:
            data["id"] = Point.of(Record.from_data(data)).id
        path.write_text(json.dumps(data), encoding="utf-8")
    list_again(folder)


def list_again(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    for one in manifest["files"]:
        one["sha256"] = hashlib.sha256((folder / one["file"]).read_bytes()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def reviewed(folder: Path) -> Review:
    return review(folder.parents[2], folder.name, "salt", 120)


def verify(folder: Path) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["verify", str(folder)], terminal_width=300, env={"COLUMNS": "300"})
    return done.exit_code, " ".join(done.output.split())


def swap_weights(folder: Path) -> None:
    one, other = (path.with_suffix(".safetensors") for path in records(folder))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    list_again(folder)


def unknown_plugin(data: dict[str, Any]) -> None:
    data["architecture"] |= {"name": "nobodys", "distribution": "nobodys-plugin"}


def another_task_version(data: dict[str, Any]) -> None:
    data["task"]["version"] = 99


def another_protocol(data: dict[str, Any]) -> None:
    data["protocol"] |= {"name": "quick", "version": 1, "config": {"steps": 200, "lr": 0.02}, "label": ""}


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (unknown_plugin, NOT_ALL_VERIFIED, "unknown architecture 'nobodys'"),
        (another_task_version, NOT_ALL_VERIFIED, "version 99 of task bigram, and version 1 is installed"),
    ],
)
def test_what_is_not_here_cannot_be_checked(
    folder: Path, change: Callable[[dict[str, Any]], None], code: int, words: str
) -> None:
    edit(folder, change)
    found, text = verify(folder)
    assert found == code
    assert words in text
    one = reviewed(folder)
    assert exit_code([one.outcome]) == code
    assert "cannot be checked" in one.text


def test_swapped_weights_fail(folder: Path) -> None:
    swap_weights(folder)
    code, text = verify(folder)
    assert code == 1
    assert "its weights" in text
    assert exit_code([reviewed(folder).outcome]) == 1


def test_a_record_that_claims_another_protocol_fails(folder: Path) -> None:
    edit(folder, another_protocol, identified=False)
    code, text = verify(folder)
    assert code == 1
    assert "its id is" in text
    one = reviewed(folder)
    assert exit_code([one.outcome]) == 1
    assert "but its contents have the id" in one.text


def test_a_board_of_quick_rows_is_none(tmp_path: Path) -> None:
    folder = submission(tmp_path, protocol="quick", protocol_options=[])
    one = reviewed(folder)
    assert exit_code([one.outcome]) == 1
    assert "2 records of a protocol that is never ranked, such as `quick`: they stay off the board." in one.text


def link(folder: Path) -> None:
    (folder / "more").symlink_to("/etc")


def path_in_a_name(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    manifest["files"][0]["file"] = "../../outside.json"
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def markup(folder: Path) -> None:
    (folder / "<img src=x onerror=alert(1)>.json").write_text("{}")


def many_files(folder: Path) -> None:
    (folder / "more").mkdir()
    for number in range(10_000):
        (folder / "more" / f"{number}.json").touch()


def a_plugin_elsewhere(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    (folder / MANIFEST).write_text(json.dumps({**manifest, "plugins": ["../../../evil.py"]}), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (link, "more is not a plain file; a submission holds no links, pipes or devices"),
        (path_in_a_name, "'../../outside.json', which is no file of a submission"),
        (markup, "a name is at most 100 letters"),
        (many_files, f"it holds more than {MAX_FILES:,} files, the most that a submission may have"),
        (a_plugin_elsewhere, "evil.py"),
    ],
)
def test_a_folder_that_is_no_submission_is_not_looked_at_further(
    folder: Path, change: Callable[[Path], None], words: str
) -> None:
    assert check_folder(folder) == ""
    change(folder)
    one = reviewed(folder)
    assert exit_code([one.outcome]) == 1
    assert "Not looked at further" in one.text
    assert words in one.text.replace("\\", "").replace("&#x27;", "'").replace("&#39;", "'")
    assert "<img" not in one.text
    assert "\n" not in one.text  # one sentence


def test_an_honest_plugin_is_verified_with_its_place_on_the_board(tmp_path: Path) -> None:
    (tmp_path / "pairs.py").write_text(PLUGIN)
    selection = Selection(files=(str(tmp_path / "pairs.py"),))
    folder = submission(tmp_path, selection, models=["pairs"], seeds=tuple(range(5)))
    one = reviewed(folder)
    assert one.outcome == "verified", one.text
    assert "✅ 5 verified" in one.text
    assert "It brings code of its own, which somebody should read" in one.text
    assert "with 1 new row of **pairs**" in one.text
    assert "One point, drawn by the salt `salt`, was trained again" in one.text


def test_the_comment_has_the_whole_track_that_ranks_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviewing, "published_entries", lambda: [Entry(one, published=True) for one in track_records()])
    monkeypatch.setattr(reviewing, "read_history", list)
    names = ("aot", "lookup", "newcomer")
    mine = [one for one in track_records(names) if one.architecture["name"] == "newcomer"]
    mine = [one for one in mine if (one.task["name"], one.protocol["name"]) == ("ngram", "converged")]
    text = reviewing._tables([Entry(one) for one in mine])
    assert re.findall(r"^### (.*)", text, re.M) == ["Accuracy against parameters"]
    assert re.findall(r"^#### (\w+)", text, re.M) == ["ngram"]  # the sizes of what is new
    overview = text.split("###")[1]
    assert re.search(r"architecture *\| bigram *\| ngram *\| zipf", overview)
    assert all(re.search(rf"\| {name} *\|", overview) for name in ("aot", "lookup", "mlp-transformer", "newcomer"))


def test_what_else_is_changed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviewing, "offline", lambda: False)
    text = comment_text([], ["membench/cli.py"], ["old"])
    assert "Also changes 1 other file, which nobody verified: membench/cli.py" in text
    assert "Removed: old." in text
    assert "Verified **with** a network" in text


def test_a_base_that_git_does_not_know_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="git cannot compare with 'nowhere'"):
        changed(tmp_path, "nowhere")


def test_submit_refuses_what_is_no_folder_of_records(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["submit", str(tmp_path / "nothing"), "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, UsageError)
    assert done.exception.exit_code == 2
    assert "nothing' does not exist" in str(done.exception)
