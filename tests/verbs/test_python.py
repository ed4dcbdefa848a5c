"""membench from Python: the same words, records and sentences as on the command line."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import make_record

import membench
from membench.errors import PluginError, UsageError
from membench.results import Results

QUICK: dict[str, Any] = {"protocol": "quick", "P": {"steps": 5}, "progress": False}
HEAVY = ("torch", "pandas", "matplotlib", "numpy", "scipy")


def fresh(script: str) -> str:
    """What a script prints in a Python that has imported nothing yet."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_import_is_light_and_knows_all_its_names() -> None:
    loaded = f"[m for m in {HEAVY!r} if m in sys.modules]"
    script = f"import sys, membench\nprint({loaded}, set(membench.__all__) - set(dir(membench)))"
    assert fresh(script).strip() == "[] set()"
    late = f"import sys, membench\nmembench.run, membench.load, membench.capacity, membench.Results\nprint({loaded})"
    assert not {"torch", "pandas", "matplotlib", "scipy"} & set(fresh(late).strip("[]\n").replace("'", "").split(", "))


def test_no_name_of_the_api_is_a_module_which_an_import_would_put_in_its_place() -> None:
    assert not {module.name for module in pkgutil.iter_modules(membench.__path__)} & set(membench.__all__)


def test_every_name_can_be_had_and_no_other() -> None:
    for name in membench.__all__:
        assert getattr(membench, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'runn'"):
        membench.runn  # noqa: B018


def test_records_are_those_of_the_command_line(cli: Callable[..., Any], tmp_path: Path) -> None:
    results = membench.run("lookup", "bigram", T={"N": [5, 6]}, seeds=2, out=tmp_path / "results", **QUICK)
    assert (len(results), results.ran, results.failed) == (4, 4, [])
    words = ("run", "--model", "lookup", "--task", "bigram", "-T", "N=5,6", "--protocol", "quick", "-P", "steps=5")
    assert "0 trials run, 4 reused" in cli(*words, "--seeds", "2").stdout
    again = membench.run("lookup", "bigram", T="N=5:6", seeds=range(2), out=tmp_path / "results", **QUICK)
    assert (len(again), again.ran) == (4, 0)
    assert membench.run("lookup", "bigram", T={"N": 5}, seeds=1, out=tmp_path / "results", overwrite=True, **QUICK).ran


@pytest.fixture
def cli(membench: Callable[..., Any]) -> Callable[..., Any]:
    """The command line under a name that leaves `membench` to the module."""
    return membench


def test_results_are_frames_and_tables(tmp_path: Path) -> None:
    results = membench.run("lookup", "bigram", T={"N": [5, 6]}, seeds=3, out=tmp_path, **QUICK)
    assert results.frame[["N", "seed"]].to_numpy().tolist() == [[N, seed] for N in (5, 6) for seed in range(3)]
    rows = results.summary()
    assert rows["N"].tolist() == [5, 6]
    assert rows["seeds"].tolist() == [3, 3]
    assert rows["failed"].tolist() == [0, 0]
    assert rows["accuracy"].to_numpy() == pytest.approx(results.frame.groupby("N")["accuracy"].mean().to_numpy())
    assert (rows["low"] <= rows["accuracy"]).all()
    assert {"high", "bits", "bits_per_parameter", "proven_accuracy", "zero_head", "chance"} <= set(rows)
    text, page = repr(results), results._repr_html_()
    assert text.startswith("lookup on bigram (zipf=0), protocol quick (steps=5 lr=0.02)\nN")
    assert f"6 trials run, 0 reused from {tmp_path}" in text
    assert page.count("<tr") == 3
    assert "<p><b>lookup on bigram" in page


def test_names_in_records_stay_text_in_a_notebook() -> None:
    nasty = make_record(architecture={"name": "<script>", "config": {}, "label": "<b>"}, error="<i>", status="failed")
    page = Results([nasty, make_record()])._repr_html_()
    assert "<script>" not in page
    assert "<i>" not in page
    assert "&lt;script&gt;" in page


def test_results_of_nothing_say_so(tmp_path: Path) -> None:
    assert repr(Results([])) == "no trials"
    assert Results([]).summary().empty
    with pytest.raises(UsageError, match="no finished records to plot"):
        Results([]).plot(x="H")


def bag(length: int = 2) -> type:
    """A class as a notebook would define it: no file holds it."""
    import torch

    class Bag(torch.nn.Module):
        def __init__(self, vocab: int, length: int, answers: int, width: int = 4) -> None:
            super().__init__()
            if width == 3:
                raise RuntimeError("three is too few")
            if width == 2:
                raise KeyboardInterrupt
            self.embedding = torch.nn.Embedding(vocab, width)
            self.out = torch.nn.Linear(width, answers)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.out(self.embedding(tokens).sum(dim=1))  # type: ignore[no-any-return]

    return Bag


def test_a_class_is_measured_in_this_process(tmp_path: Path) -> None:
    results = membench.run(bag(), "bigram", M={"width": [4, 5]}, T={"N": 5}, seeds=2, out=tmp_path, **QUICK)
    assert results.summary()["width"].tolist() == [4, 5]
    assert {record.architecture["name"] for record in results.records} == {"Bag"}
    with pytest.raises(UsageError, match="executor 'local': a class or function of this process needs"):
        membench.run(bag(), "bigram", executor="local", out=tmp_path, **QUICK)


def test_a_class_that_was_changed_is_measured_again_and_keeps_its_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words: dict[str, Any] = {"T": {"N": 5}, "seeds": 2, "out": tmp_path, **QUICK, "progress": True}
    membench.run(bag(), "bigram", keep_weights=True, **words)
    assert membench.run(bag(), "bigram", **words).ran == 0  # the same cell, executed again
    assert capsys.readouterr().err == ""

    class Changed(bag()):  # type: ignore[misc]
        def forward(self, tokens: Any) -> Any:
            return 2 * super().forward(tokens)

    Changed.__name__ = "Bag"
    again = membench.run(Changed, "bigram", **words)
    assert again.ran == 2
    told = "membench: measuring 2 of 2 trials again: the code of Bag is not the code that was measured\n"
    assert capsys.readouterr().err == told
    assert all(record.weights for record in again.records)


def test_a_class_in_a_file_runs_in_worker_processes(tmp_path: Path) -> None:
    (tmp_path / "layer.py").write_text(LAYER, encoding="utf-8")
    model = f"{tmp_path / 'layer.py'}:Bag"
    results = membench.run(model, "bigram", M={"width": [3, 4]}, T={"N": 5}, seeds=1, out=tmp_path / "out", **QUICK)
    assert results.summary()["width"].tolist() == [3, 4]
    assert results.frame["parameters"].tolist() == [5 * 3 + 3 * 5 + 5, 5 * 4 + 4 * 5 + 5]


LAYER = """
from torch import nn


class Bag(nn.Module):
    def __init__(self, vocab, length, answers, width: int = 4):
        super().__init__()
        self.embedding, self.out = nn.Embedding(vocab, width), nn.Linear(width, answers)

    def forward(self, tokens):
        return self.out(self.embedding(tokens).sum(dim=1))
"""


def test_a_function_and_several_models_at_once(tmp_path: Path) -> None:
    import torch

    def table(vocab: int, answers: int, length: int) -> Any:
        last = torch.nn.Linear(3 * length, answers)
        return torch.nn.Sequential(torch.nn.Embedding(vocab, 3), torch.nn.Flatten(), last)

    results = membench.run([table, "lookup"], "bigram", T={"N": 4}, seeds=1, out=tmp_path, **QUICK)
    assert results.summary()["model"].tolist() == ["table", "lookup"]
    assert "model" in repr(results).splitlines()[1]


def test_a_trial_that_fails_raises_nothing_and_is_told(tmp_path: Path) -> None:
    results = membench.run(bag(), "bigram", M={"width": [3, 4]}, T={"N": 5}, seeds=2, out=tmp_path, **QUICK)
    assert [record.seed for record in results.failed] == [0, 1]
    assert "three is too few" in str(results.failed[0].error)
    rows = results.summary()
    assert rows[["width", "seeds", "failed"]].to_numpy().tolist() == [[3, 0, 2], [4, 2, 0]]
    assert np.isnan(rows["accuracy"][0])
    assert "2 of 4 trials failed:\n  Bag (width=3) on bigram, seed 0: RuntimeError: three is too few" in repr(results)
    assert len(results.frame) == 2
    only = membench.run(bag(), "bigram", M={"width": 3}, T={"N": 5}, seeds=1, out=tmp_path, **QUICK)
    assert "1 of 1 trials failed" in repr(only)
    with pytest.raises(PluginError, match="trials failed"):
        membench.capacity(bag(), "bigram", M={"width": 3}, T={"N": 5}, seeds=1, out=tmp_path, **QUICK)


def test_an_interruption_keeps_what_is_done(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        membench.run(bag(), "bigram", M={"width": [4, 2]}, T={"N": 5}, seeds=1, out=tmp_path, **QUICK)
    assert membench.load(tmp_path).frame["width"].tolist() == [4]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"model": "aott"}, "unknown architecture 'aott'; did you mean 'aot'?"),
        ({"task": "bigrams"}, "unknown task 'bigrams'; did you mean 'bigram'?"),
        ({"M": {"h": 3}}, "unknown option of aot 'h'; did you mean 'H'?"),
        ({"M": {"d": "ten"}}, "d=ten: a whole number of at least 1"),
        ({"M": {"H": []}}, r"H=\[\] is an empty grid"),
        ({"M": ["H"]}, "'H' is not of the form NAME=VALUE"),
        ({"seeds": 0}, "seeds=0: give a number of seeds such as 5"),
        ({"seeds": [1.5]}, r"seeds=\[1.5\]: give a number of seeds"),
        ({"seeds": [-1]}, r"seeds=\[-1\]"),
        ({"budget": "many"}, "--budget many: give a number of parameters"),
        ({"device": "tpu"}, "device 'tpu' is not one of"),
        ({"executor": "slurm"}, "executor 'slurm' is not one of"),
        ({"plugins": ["none.py"]}, "none.py' does not exist"),
        ({"model": 3}, "model 3 is neither a name nor a class"),
        ({"model": "lookup", "floor": True}, "lookup declares no bottleneck"),
    ],
)
def test_what_cannot_be_used_is_a_sentence_before_anything_runs(
    tmp_path: Path, words: dict[str, Any], sentence: str
) -> None:
    model, task = words.pop("model", "aot"), words.pop("task", "bigram")
    with pytest.raises(UsageError, match=sentence):
        membench.run(model, task, out=tmp_path / "results", progress=False, **words)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        (None, []),
        ({"H": 3, "flag": True, "d_h": None}, ["H=3", "flag=true", "d_h=auto"]),
        ({"H": [1, 6], "p": 0.5, "name": "x"}, ["H=1,6", "p=0.5", "name=x"]),
        ({"H": range(1, 12, 5), "d": (7,)}, ["H=1,6,11", "d=7"]),
        ({"H": np.arange(2), "lr": np.float64(0.1)}, ["H=0,1", "lr=0.1"]),
        ({"aot": {"H": 3, "d": [7, 10]}}, ["aot.H=3", "aot.d=7,10"]),
        ({"H": "1:31:5"}, ["H=1:31:5"]),
        (["H=1:31:5", "d=7"], ["H=1:31:5", "d=7"]),
        ("H=3", ["H=3"]),
    ],
)
def test_options_are_said_as_they_would_be_typed(options: Any, texts: list[str]) -> None:
    from membench.verbs.arguments import texts_of

    assert texts_of(options) == texts


def test_a_budget_is_said_in_numbers_or_words() -> None:
    from membench.verbs.arguments import budgets_of

    assert [one.parameters for one in budgets_of("3k,10k")] == [3000, 10_000]
    assert [one.parameters for one in budgets_of([3000, "1k"])] == [3000, 1000]
    assert [one.count for one in budgets_of(500, "each")] == ["all", "without-embeddings"]
    assert budgets_of(None) == []


def test_a_figure_is_handed_over_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    monkeypatch.chdir(tmp_path)
    backend = matplotlib.get_backend()
    results = Results([line(H, seed) for H in range(1, 6) for seed in range(3)])
    assert isinstance(results.plot(x="H"), Figure)
    drawn = results.curves(x="H", by="d", fit=["linear"], where={"d": 10})
    assert drawn.sentences[0].startswith("d=10: slope 0.02 per H")
    assert list(tmp_path.iterdir()) == []
    assert [path.name for path in drawn.write(tmp_path / "mine", [".svg"])] == ["mine.svg", "mine.csv"]
    assert matplotlib.get_backend() == backend  # writing a file leaves a notebook's way of drawing alone
    with pytest.raises(UsageError, match="unknown column 'heads'"):
        results.plot(x="heads")


def line(H: int, seed: int) -> Any:
    architecture = {"name": "aot", "config": {"d": 10, "H": H}}
    metrics = {"accuracy": 0.1 + 0.02 * H + 0.001 * seed}
    return make_record(id=f"h{H}", seed=seed, architecture=architecture, metrics=metrics)


def test_a_notebooks_figure_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pyplot keeps no figure that a notebook would show beside the value of the cell."""
    import matplotlib
    from matplotlib import pyplot as plt

    monkeypatch.setattr(matplotlib, "get_backend", lambda: "module://matplotlib_inline.backend_inline")
    before = plt.get_fignums()
    Results([line(H, seed) for H in (1, 2) for seed in range(2)]).plot(x="H")
    assert plt.get_fignums() == before


def test_capacity_has_its_threshold_and_continues(tmp_path: Path) -> None:
    words: dict[str, Any] = {
        "M": {"d": 2}, "T": {"S": 1, "N": 12}, "protocol": "quick", "seeds": 2, "resolution": 1, "largest": 4,
        "out": tmp_path, "progress": False,
    }  # fmt: skip
    found = membench.capacity("linear-memory", "ngram", **words)
    assert 1 <= found.threshold.low <= found.threshold.facts <= found.threshold.high <= 4
    assert [one.level for one in found.thresholds] == [1.0, 0.99]
    assert len(found.frame) == found.ran == 2 * len(found.summary())
    assert "all right:" in repr(found)
    assert "<table" in found._repr_html_()
    assert found.plot().axes
    again = membench.capacity("linear-memory", "ngram", at=1, **words)
    assert (again.ran, again.threshold) == (0, found.threshold)
    for wrong, sentence in (
        ({"at": [0.5, 2]}, "accuracies above 0 and up to 1"),
        ({"vary": "S"}, "unknown option to vary 'S'"),
        ({"resolution": 0}, "--resolution 0: give a number from 0.001 to 1"),
        ({"largest": 0.5}, "--largest"),
        ({"M": {"d": [2, 3]}}, "capacity measures one point"),
    ):
        with pytest.raises(UsageError, match=sentence):
            membench.capacity("linear-memory", "ngram", **{**words, **wrong})


def test_bounds_and_floor_are_frames(capsys: pytest.CaptureFixture[str]) -> None:
    found = membench.bounds("aot", "bigram", M={"H": [1, 2]}, T={"N": 10}, progress=False)
    frame = found.frame
    assert set(frame["H"]) == {1, 2}
    assert {"theorem-1", "chance"} <= set(frame["bound"])
    assert frame.loc[frame["bound"] == "chance", "value"].tolist() == [0.1, 0.1]
    assert "H=2" in repr(found)
    assert found.plot().axes
    one = membench.bounds("lookup", "bigram", T={"N": 5}, progress=False)
    assert "no bound is specific to 'lookup'" in capsys.readouterr().err
    assert "accuracy = 0.2" in repr(one)
    with pytest.raises(UsageError, match="needs a grid"):
        one.plot()
    with pytest.raises(UsageError, match="give one model here, not 2"):
        membench.bounds(["aot", "lookup"], "bigram")  # type: ignore[arg-type]
    floor = membench.floor("low-entropy", T={"N": 5}, M={"d": range(1, 3)}, starts=2, progress=False)
    assert floor.frame["d"].tolist() == [1, 2]
    assert floor.plot().axes


def test_a_reproduction_of_published_records_trains_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = membench.reproduce("e4", published=True, protocol="converged", progress=False)
    assert found.verdict is not None
    assert found.verdict.holds is False
    assert found.summary()["d"].tolist() == [4, 7, 10, 13]
    assert set(found.frame["model"]) == {"aot"}
    assert "does not hold" in repr(found)
    assert found.plot().axes
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match=r"name one experiment at a time; there are: .*e1, e2"):
        membench.reproduce("all")


def test_records_are_loaded_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, accuracy in (("old", 0.5), ("new", 0.3)):
        (tmp_path / folder).mkdir()
        for seed in range(8):
            record = make_record(seed=seed, metrics={"accuracy": accuracy + 0.001 * seed})
            (tmp_path / folder / f"{seed}.json").write_text(record.to_json(), encoding="utf-8")
    (tmp_path / "new" / "half.json").write_text("{", encoding="utf-8")
    old, new = membench.load(tmp_path / "old"), membench.load(tmp_path / "new")
    assert "skipped" in capsys.readouterr().err
    assert (len(old), old.ran) == (8, None)
    assert f"8 records in {tmp_path / 'old'}" in repr(old)
    assert membench.compare(old, new, watch={"accuracy": 0.02}).counts() == {"lost": 1}
    assert membench.compare(old, tmp_path / "old", watch=["accuracy"]).counts() == {"identical": 1}
    with pytest.raises(UsageError, match="does not exist"):
        membench.load(tmp_path / "nowhere")
