from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from regression_samples import PLUGIN, SUITE
from samples import make_record

from membench.cli import main
from membench.commands._output import finish
from membench.errors import UsageError
from membench.interface.registry import Registry
from membench.records.record import Record
from membench.records.store import Store
from membench.regress.baseline import Baseline, default_path, read_baseline, write_baseline
from membench.regress.compare import CapacityLost, Comparisons, Sample, compare, samples
from membench.regress.formats import as_junit, as_markdown, as_plain, as_table
from membench.regress.gate import Gate
from membench.regress.suite import Plan, Suite, parse_suite

TINY = parse_suite(SUITE, "tiny.toml")
REGISTRY = Registry()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A maintainer's folder: an architecture and a suite for it."""
    (tmp_path / "mine.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "tiny.toml").write_text(SUITE, encoding="utf-8")
    return tmp_path


def records(accuracy: float, **changes: Any) -> list[Record]:
    fields = {"environment": {"torch": "2.13.0", "device": "cpu"}, **changes}
    return [make_record(seed=seed, metrics={"accuracy": accuracy + 0.001 * seed}, **fields) for seed in range(8)]


def baseline(**changes: Any) -> Baseline:
    fields: dict[str, Any] = {
        "suite": "tiny", "suite_version": 1, "models": (), "seeds": tuple(range(8)),
        "samples": tuple(samples(records(0.5))),
    }  # fmt: skip
    return Baseline(**{**fields, **changes})


def gate(plan: Plan, **changes: Any) -> Gate:
    fields: dict[str, Any] = {"models": (), "seeds": tuple(range(8)), **changes}
    return Gate(REGISTRY, TINY, Path("baselines/tiny.json"), plan, **fields)


def lost(**changes: Any) -> Comparisons:
    return compare(samples(records(0.5, **changes)), samples(records(0.3, **changes)), lambda one: {"accuracy": 0.02})


@dataclass
class Done:
    code: object
    out: str
    err: str


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command line in this process, where the server of the workers imports torch once for all calls."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # pytest has its own way with Ctrl-C

    def call(*words: str) -> Done:
        monkeypatch.setattr("sys.argv", ["membench", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(ended.value.code, *capsys.readouterr())

    return call


def save(folder: Path, found: list[Record]) -> None:
    folder.mkdir()
    for record in found:
        (folder / f"{record.seed}.json").write_text(record.to_json(), encoding="utf-8")


def test_a_baseline_is_written_compared_with_and_catches_a_loss(
    cli: Callable[..., Done], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--suite", "tiny.toml", "--plugin", "mine.py")
    wrote = cli("baseline", "write", *words)
    assert wrote.code == 0, wrote.err
    assert "wrote baselines/tiny.json: 1 point, 8 trials" in wrote.out
    same = cli("regress", *words, "--json")
    assert same.code == 0, same.err
    (row,) = json.loads(same.out)["comparisons"]
    assert (row["verdict"], row["why"]) == ("identical", "the same number for 8 seeds")
    (project / "mine.py").write_text(PLUGIN.replace("LOSS = False", "LOSS = True"), encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "80")
    spoilt = cli("regress", *words, "--out", "kept")
    assert spoilt.code == 1, spoilt.err
    assert "LOST" in spoilt.out
    assert max(map(len, spoilt.out.splitlines()[:-1])) <= 80
    assert "capacity was lost: mine on bigram N=4 T0=16 zipf=0, quick steps=20 lr=0.02: accuracy from" in spoilt.err
    assert len(list(Store(project / "kept").files())) == 8


def test_compare_takes_any_two_folders_of_records(cli: Callable[..., Done], tmp_path: Path) -> None:
    save(tmp_path / "old", records(0.5))
    save(tmp_path / "new", records(0.3))
    (tmp_path / "new" / "half.json").write_text('{"schema": 1', encoding="utf-8")
    done = cli("compare", "old", "new", "--watch", "accuracy", "--markdown", "r.md", "--junit", "r.xml")
    assert done.code == 1
    assert "skipped 'new/half.json'" in done.err
    assert "**lost**" in (tmp_path / "r.md").read_text("utf-8")
    assert ElementTree.parse(tmp_path / "r.xml").getroot().get("failures") == "1"
    assert cli("compare", "old", "new", "--watch", "accuracy=0.5").code == 0
    assert cli("compare", "old", "old", "--json").code == 0  # no kl in them: a warning, and 1 if strict
    assert cli("compare", "old", "old", "--strict").code == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "old", "none"], "'none' does not exist"),
        (["compare", "old", "old", "--watch", "acc"], "unknown metric 'acc'; did you mean 'accuracy'"),
        (["compare", "old", "old", "--watch", "accuracy=x"], "--watch accuracy=x: the smallest loss that counts"),
        (["compare", "old", "other"], "have no point in common"),
        (["compare", "old", "empty"], "'empty' has no finished trials"),
        (["regress", "--suite", "tiny.toml", "--require-baseline"], "there is no baseline 'baselines/tiny.json'"),
        (["regress", "--suite", "tiny.toml", "--junit", "no/r.xml"], "there is no folder 'no'"),
        (["regress", "--suite", "tiny.toml"], "suite 'tiny.toml', trial 1: unknown architecture 'mine'"),
    ],
)
def test_mistakes_are_found_before_anything_is_measured(
    cli: Callable[..., Done], project: Path, words: list[str], message: str
) -> None:
    for folder, found in (("old", records(0.5)), ("other", records(0.5, id="other")), ("empty", [])):
        save(project / folder, found)
    done = cli(*words)
    assert done.code == 2
    assert message in done.err


def test_a_baseline_keeps_every_digit(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "tiny.json"
    write_baseline(path, baseline())
    found = read_baseline(path, TINY)
    assert found.samples[0].metrics == baseline().samples[0].metrics
    assert found.samples[0].environment["torch"] == "2.13.0"
    assert (found.models, found.seeds) == ((), tuple(range(8)))
    assert default_path(TINY) == Path("baselines/tiny.json")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text[: len(text) // 2], r"is not a whole JSON file .*membench baseline write --suite tiny.toml"),
        (lambda text: text.replace('"schema": 1', '"schema": 2'), "has schema 2, but this membench reads up to 1; upg"),
        (lambda text: text.replace('"tiny"', '"other"'), "belongs to suite 'other', not to 'tiny'"),
        (
            lambda text: text.replace('"suite_version": 1', '"suite_version": 7'),
            "version 7 of suite 'tiny', which",
        ),
        (lambda text: text.replace('"points"', '"pionts"'), "is damaged .KeyError: 'points'"),
        (lambda text: text.replace("[0.5, ", "["), "is damaged .*accuracy has 7 numbers for 8 seeds"),
        (lambda text: text.replace("0.5,", '"x",', 1), "is damaged"),
        (lambda text: "[]", "is not a membench baseline"),
        (lambda text: "\x00", "is not a whole JSON file"),
    ],
)
def test_a_baseline_that_cannot_be_used_says_why_and_what_to_do(
    tmp_path: Path, spoil: Callable[[str], str], message: str
) -> None:
    path = tmp_path / "tiny.json"
    path.write_text(spoil(baseline().to_json()), encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        read_baseline(path, TINY)


def test_a_baseline_that_cannot_be_read_or_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read baseline"):
        read_baseline(tmp_path, TINY)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="cannot write baseline"):
        write_baseline(tmp_path / "file" / "tiny.json", baseline())


def test_a_point_that_the_suite_no_longer_has_is_missed_once() -> None:
    old = list(baseline().samples)
    plan = Plan((), {"other": {"accuracy": 0.02, "kl": 0.02}})
    found = gate(plan, old=baseline()).compare([])
    assert [(row.verdict, row.metric) for row in found.rows] == [("not comparable", "accuracy")]
    assert gate(plan, models=("mine",)).asked(old) == []  # nobody asked for it


def test_few_seeds_for_many_comparisons_are_noted() -> None:
    plan = Plan((), {str(i): {"accuracy": 0.02} for i in range(20)})
    assert "11 seeds could" in gate(plan, old=baseline()).notes[0]
    assert gate(plan, old=baseline(), seeds=tuple(range(11))).notes == []


def test_a_loss_ends_with_code_1_and_what_cannot_be_said_only_if_strict(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CapacityLost, match=r"on bigram N=50, converged: accuracy from 0\.5035 to 0\.3035") as caught:
        finish(lost(), strict=False)
    assert caught.value.exit_code == 1
    other = compare(samples(records(0.5)), samples(records(0.3, environment={"torch": "2.14.0", "device": "cpu"})),
                    lambda one: {"accuracy": 0.02})  # fmt: skip
    finish(other, strict=False)
    assert "nothing can be said of 1 of 1 comparisons" in capsys.readouterr().err
    with pytest.raises(CapacityLost, match="--strict"):
        finish(other, strict=True)


NASTY = "<script>|`x`[red]\x00\n"


def test_names_from_records_are_escaped_in_every_output() -> None:
    from rich.console import Console

    found = lost(architecture={"name": NASTY, "config": {}, "label": NASTY})
    text = as_markdown(found, "a heading", [])
    assert "<script>" not in text
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 3
    case = ElementTree.fromstring(as_junit(found, NASTY)).find("testcase")
    assert case is not None
    assert case.find("failure") is not None
    assert "<script>" in (case.get("name") or "")
    console = Console(width=80, record=True, file=StringIO())
    console.print(as_table(found, NASTY))
    assert "[red]" in console.export_text()


def test_the_same_things_are_said_in_every_format() -> None:
    found = lost()
    (row,) = as_plain(found, "heading", ["a note"])["comparisons"]
    assert row["verdict"] == "lost"
    assert row["gain"] == pytest.approx(-0.2)
    assert json.dumps(as_plain(found, "heading", []))
    text = as_markdown(found, "heading", ["a note"])
    for words in ("capacity was lost", "a note", "0.5035", "0.3035", "-0.2000", "0.0039", "**lost**"):
        assert words in text
    same = compare(samples(records(0.5)), samples(records(0.5)), lambda one: {"accuracy": 0.02})
    assert "no loss of capacity" in as_markdown(same, "heading", [])
    assert as_markdown(Comparisons(()), "heading", ["a note"]) == "### heading\n\na note\n"


def test_points_that_share_a_name_are_told_apart_in_the_table() -> None:
    from rich.console import Console

    def both(accuracy: float) -> list[Sample]:
        parts = [{"name": "aot", "config": {}, "label": label} for label in ("H=1", "H=2")]
        return [one for part in parts for one in samples(records(accuracy, id=part["label"], architecture=part))]

    console = Console(width=80, record=True, file=StringIO())
    console.print(as_table(compare(both(0.5), both(0.501), lambda one: {"accuracy": 0.02}), "heading"))
    text = console.export_text()
    assert "H=1" in text
    assert "H=2" in text


def test_skipped_in_junit_is_what_nothing_can_be_said_of() -> None:
    few = [one for one in records(0.5) if one.seed < 3]
    lower = [one for one in records(0.3) if one.seed < 3]
    found = compare(samples(few), samples(lower), lambda one: {"accuracy": 0.02})
    root = ElementTree.fromstring(as_junit(found, "heading"))
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("1", "0", "1")


def test_a_suite_of_another_name_needs_a_baseline_of_its_own() -> None:
    other = Suite(name="other", version=1, seeds=8, trials=TINY.trials)
    assert default_path(other) != default_path(TINY)


def test_the_committed_baseline_fits_the_suite_and_every_built_in_architecture() -> None:
    from membench.regress.suite import load_suite, plan_suite

    suite = load_suite("smoke")
    found = read_baseline(Path(__file__).parents[2] / "baselines" / "smoke.json", suite)
    plan = plan_suite(REGISTRY, suite, found.models, found.seeds)
    assert {one.id for one in found.samples} == set(plan.watch)
    assert all(isinstance(one, Sample) and len(one.seeds) == suite.seeds for one in found.samples)
