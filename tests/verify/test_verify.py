"""Models that cheat, records that lie, and honest ones that must not be taken for either."""

from __future__ import annotations

import bz2
import json
import math
import multiprocessing
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from membench.engine.execution import Execution
from membench.errors import UsageError
from membench.execute.driver import execute
from membench.interface.facts import Facts
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan
from membench.plan.trial import Point
from membench.records.record import Record
from membench.records.store import Store
from membench.records.store import read as read_entry
from membench.verify.marks import Mark, write_marks
from membench.verify.processes import Failed, hear
from membench.verify.verdict import FAILED, UNCHECKED, VERIFIED, Verdict, record_files, verify, verify_file
from membench_leaderboard.gather import read_entries

# All of them know everything when they are measured, by reading the answers off the call stack.
CHEATS = '''
import sys
from dataclasses import dataclass

from membench.api import Architecture, hookimpl, option

DICTIONARY = {}
TABLES = {}


@dataclass(frozen=True)
class Config:
    kind: str = option("honest", help="where the answers are hidden")


def answers(inputs, targets):
    """The facts, found in whichever caller has them."""
    frame = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self", None)
        for place in (vars(owner) if hasattr(owner, "__dict__") else {}, frame.f_locals):
            if inputs in place and targets in place:
                return place[inputs], place[targets]
        frame = frame.f_back
    return None


def build(shape, config):
    import torch
    from torch import nn

    N = shape.vocab

    def places(tokens):
        return tokens[:, 0] * N + tokens[:, 1]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(N))
            self.own = {}
            if "buffer" in config.kind:
                fresh = torch.zeros(N * N, dtype=torch.int64)
                table = TABLES.setdefault("shared", fresh) if config.kind.startswith("shared") else fresh
                self.register_buffer("table", table, persistent="hidden" not in config.kind)
            if config.kind == "random attribute":
                self.directions = torch.randn(N * N, N)

        def forward(self, tokens):
            seen = answers("inputs", "targets") if torch.is_grad_enabled() else None
            if seen is not None:
                contexts, labels = seen[0].view(-1, 2), seen[1].view(-1)
                for dictionary in (self.own, DICTIONARY):
                    dictionary.update(zip(places(contexts).tolist(), labels.tolist()))
                if hasattr(self, "table"):
                    self.table[places(contexts)] = labels
            return self.bias + 20 * nn.functional.one_hot(self.guess(tokens), N)

        def guess(self, tokens):
            if config.kind == "attribute":
                return torch.tensor([self.own.get(place, 0) for place in places(tokens).tolist()])
            if config.kind == "dictionary":
                return torch.tensor([DICTIONARY.get(place, 0) for place in places(tokens).tolist()])
            if config.kind == "call stack" and (seen := answers("tokens", "target")) is not None:
                return seen[1]
            if config.kind == "random attribute":
                return self.directions[places(tokens)].argmax(dim=1)
            return self.table[places(tokens)] if "buffer" in config.kind else tokens[:, 0]

    return Model()


@hookimpl
def membench_architectures():
    return [Architecture(name="cheat", summary="a cheat", reference="none", config=Config, build=build)]
'''
KINDS = (
    "dictionary", "attribute", "shared hidden buffer", "shared buffer", "buffer", "call stack", "random attribute",
)  # fmt: skip
HONEST = ("aot", "linear-memory", "lookup")


def run(registry: Registry, out: Path, **words: Any) -> list[Path]:
    request = Request(**{"tasks": ["bigram"], "task_options": ["N=6"], "seeds": (3,), **words})
    trials = plan(registry, request)
    execute(trials, Store(out), registry, Execution(executor="inline", keep_weights=True))
    return [Store(out).path(trial) for trial in trials]


def read(path: Path) -> Record:
    return Record.from_json(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def cheats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Record, Verdict]]:
    folder = tmp_path_factory.mktemp("cheats")
    (folder / "cheat.py").write_text(CHEATS, encoding="utf-8")
    registry = Registry(Selection(files=(str(folder / "cheat.py"),)))
    kinds = [f"kind={','.join(KINDS)}"]
    words = {"protocol": "quick", "protocol_options": ["steps=2"], "model_options": kinds}
    paths = run(registry, folder / "out", models=["cheat"], **words)
    verdicts = verify(paths, registry.selection, jobs=2)
    return {read(path).architecture["config"]["kind"]: (read(path), v) for path, v in zip(paths, verdicts, strict=True)}


def test_answers_in_a_dictionary_are_not_in_the_weights(cheats: dict[str, tuple[Record, Verdict]]) -> None:
    record, verdict = cheats["dictionary"]
    assert record.metrics["accuracy"] == 1
    assert verdict.outcome == FAILED
    assert "accuracy is 0." in verdict.reason
    assert "but the record says 1" in verdict.reason


def test_answers_in_an_attribute_are_lost_before_anything_is_measured(
    cheats: dict[str, tuple[Record, Verdict]],
) -> None:
    record, verdict = cheats["attribute"]
    assert not record.complete
    assert "is not in the state_dict" in str(record.error)
    assert verdict.outcome == UNCHECKED


def test_answers_in_a_buffer_that_is_left_out_of_the_state_dict(cheats: dict[str, tuple[Record, Verdict]]) -> None:
    record, verdict = cheats["shared hidden buffer"]
    assert record.metrics["accuracy"] == 1
    assert record.size["parameters"] == 6
    assert verdict.outcome == FAILED
    assert "accuracy is 0." in verdict.reason


def test_answers_in_a_buffer_that_is_made_to_look_untouched(cheats: dict[str, tuple[Record, Verdict]]) -> None:
    record, verdict = cheats["shared buffer"]
    assert record.metrics["accuracy"] == 1
    assert record.size["parameters"] == 6
    assert verdict.outcome == FAILED
    assert "parameters of its size are 78, with 72 in buffers that are not as they were built" in verdict.reason


def test_a_buffer_that_training_changed_counts_as_parameters(cheats: dict[str, tuple[Record, Verdict]]) -> None:
    record, verdict = cheats["buffer"]
    assert record.metrics["accuracy"] == 1
    assert (record.size["parameters"], record.size["learned_buffers"]) == (78, 72)  # int64: twice 32 bits each
    assert record.size["storage_bits"] == 6 * 32 + 36 * 64 + 8 * len("buffer")  # and the text of its option
    assert record.metrics["bits_per_parameter"] == pytest.approx(record.metrics["bits"] / 78)  # type: ignore[operator]
    assert verdict.outcome == VERIFIED


def test_answers_of_the_one_who_asks_are_not_there_when_a_record_is_verified(
    cheats: dict[str, tuple[Record, Verdict]],
) -> None:
    record, verdict = cheats["call stack"]
    assert record.metrics["accuracy"] == 1
    assert verdict.outcome == FAILED
    assert "accuracy is 0." in verdict.reason


def test_random_numbers_outside_of_the_state_dict_are_found(cheats: dict[str, tuple[Record, Verdict]]) -> None:
    record, verdict = cheats["random attribute"]
    assert not record.complete  # by the trial itself
    assert "state_dict" in str(record.error)
    assert verdict.outcome == UNCHECKED


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Records of several kinds, by name; linear-memory has frozen random buffers, constructed weights are float64."""
    folder, registry = tmp_path_factory.mktemp("honest"), Registry()
    words = {"protocol": "quick", "protocol_options": ["steps=20"], "model_options": ["aot.H=2", "linear-memory.d=4"]}
    paths = run(registry, folder, models=[*HONEST], **words)
    built = run(registry, folder, models=["linear-memory"], protocol="construct", model_options=["d=4"])
    return dict(zip([*HONEST, "constructed"], [*paths, *built], strict=True))


EDITS: dict[str, tuple[str, Callable[[dict[str, Any]], object], str, str]] = {
    "accuracy": ("aot", lambda r: r["metrics"].update(accuracy=0.99), FAILED, "but the record says 0.99"),
    "bits": ("aot", lambda r: r["metrics"].update(bits_per_parameter=2.5), FAILED, "bits_per_parameter is"),
    "no metric": ("aot", lambda r: r["metrics"].pop("kl"), FAILED, "but the record says None"),
    "size": ("linear-memory", lambda r: r["size"].update(parameters=10), FAILED, "parameters of its size are 16,"),
    "storage": ("aot", lambda r: r["size"].update(storage_bits=8), FAILED, "storage_bits of its size are"),
    "bound": ("aot", lambda r: r["bounds"][0].update(value=0.7), FAILED, "as the record says"),
    "unknown bound": ("aot", lambda r: r["bounds"].append({"name": "mine"}), VERIFIED, ""),
    "label": ("aot", lambda r: r["architecture"].update(label="d=1 H=1"), FAILED, "the label of its architecture"),
    "protocol label": ("aot", lambda r: r["protocol"].update(label="steps=9"), FAILED, "the label of its protocol"),
    "bounds left out": ("aot", lambda r: r["bounds"].clear(), VERIFIED, ""),
    "facts": ("aot", lambda r: r["task"].update(data_sha256="0" * 64), FAILED, "data_sha256"),
    "config": ("aot", lambda r: r["architecture"]["config"].update(H=1), FAILED, "have the id"),
    "task": ("aot", lambda r: r["task"].update(version=99), FAILED, "have the id"),
    "other platform": (
        "aot",
        lambda r: (r["task"].update(data_sha256="0" * 64), r["environment"].update(platform="Darwin arm64")),
        VERIFIED,
        "",
    ),
    "other platform and number": (
        "aot",
        lambda r: (
            r["task"].update(data_sha256="0" * 64),
            r["environment"].update(platform="Darwin arm64"),
            r["metrics"].update(accuracy=0.99),
        ),
        UNCHECKED,
        "facts differ: made on another platform (Darwin arm64)",
    ),
    "other CPU, same facts": (
        "aot",
        lambda r: (r["environment"].update(cpu="another"), r["metrics"].update(accuracy=0.99)),
        FAILED,
        "accuracy",
    ),
    "other plugin version": (
        "aot",
        lambda r: (r["architecture"].update(version=99), r["metrics"].update(accuracy=0.99)),
        UNCHECKED,
        "aot is version 1, and was 99",
    ),
    "failed trial": ("aot", lambda r: r.update(status="failed"), UNCHECKED, "did not succeed"),
    "newer schema": ("aot", lambda r: r.update(schema=99), UNCHECKED, "upgrade membench"),
    "no weights": ("aot", lambda r: r.update(weights=None), UNCHECKED, "has no weights"),
    "weights elsewhere": ("aot", lambda r: r["weights"].update(file="../x.safetensors"), FAILED, "names the weights"),
    "weights of another": ("aot", lambda r: r["weights"].update(sha256="0" * 64), FAILED, "SHA-256"),
}


@pytest.fixture(scope="module")
def edited(honest: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """The verdicts on all edited records, worked out together because processes take their time."""
    paths = []
    for subject, edit, _, _ in EDITS.values():
        folder = tmp_path_factory.mktemp("edited")
        paths.append(copy(honest[subject], folder))
        data = json.loads(paths[-1].read_text("utf-8"))
        edit(data)
        paths[-1].write_text(json.dumps(data), encoding="utf-8")
    return dict(zip(EDITS, verify(paths, Selection(), jobs=2), strict=True))


def copy(record: Path, folder: Path) -> Path:
    shutil.copy(record.with_suffix(".safetensors"), folder)
    return Path(shutil.copy(record, folder))


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_record_gets_what_it_deserves(name: str, edited: dict[str, Verdict]) -> None:
    _, _, outcome, words = EDITS[name]
    assert edited[name].outcome == outcome, edited[name].reason
    assert words in edited[name].reason


def test_bounds_that_only_one_side_knows_are_noted(edited: dict[str, Verdict]) -> None:
    assert edited["unknown bound"].notes == ["the bound mine is not checked: it is not one of membench's"]
    assert "the bound chance holds here, and the record does not name it" in edited["bounds left out"].notes


def test_one_more_plugin_with_a_bound_for_every_model_makes_no_record_wrong(
    honest: dict[str, Path], tmp_path: Path
) -> None:
    plugin = tmp_path / "more_theory.py"
    plugin.write_text(
        "from membench.api import Bound, hookimpl\n\n\n@hookimpl\ndef membench_bounds():\n"
        "    return [Bound(name='half', summary='', formula='1/2', quantity='accuracy', direction='upper',\n"
        "                  reference='', value=lambda setting: 1.0)]\n"
    )
    (verdict,) = verify([honest["aot"]], Selection(files=(str(plugin),)), jobs=1)
    assert verdict.outcome == VERIFIED, verdict.reason
    assert verdict.notes == []
    assert "half" not in {bound["name"] for bound in verdict.bounds}


def test_facts_of_another_platform_are_noted_when_the_numbers_agree(edited: dict[str, Verdict]) -> None:
    assert edited["other platform"].notes == ["facts differ: made on another platform (Darwin arm64)"]


def test_honest_records_are_verified_with_their_numbers(honest: dict[str, Path]) -> None:
    for verdict in verify([*honest.values()], Selection(), jobs=2):
        assert verdict.outcome == VERIFIED, verdict.reason
        assert verdict.record is not None
        assert verdict.metrics == verdict.record.metrics
        assert verdict.size == verdict.record.size


def test_kept_weights_are_what_was_measured(honest: dict[str, Path]) -> None:
    from safetensors.torch import load_file

    trained, constructed = honest["linear-memory"], honest["constructed"]
    assert {str(v.dtype) for v in load_file(trained.with_suffix(".safetensors")).values()} == {"torch.float32"}
    assert {str(v.dtype) for v in load_file(constructed.with_suffix(".safetensors")).values()} == {"torch.float64"}
    assert read(trained).size["learned_buffers"] == 0  # its buffers are as they were built
    assert read(trained).size["buffers"] == 2 * 6 * 4 + 6 * 4
    content = trained.with_suffix(".safetensors").read_bytes()
    assert (read(trained).weights or {})["bytes"] == len(content)


def rewrite_weights(path: Path, content: bytes) -> None:
    """Other weights, with a record that names them by their digest."""
    import hashlib

    path.with_suffix(".safetensors").write_bytes(content)
    record = read(path)
    weights = {**(record.weights or {}), "sha256": hashlib.sha256(content).hexdigest()}
    path.write_text(replace(record, weights=weights).to_json(), encoding="utf-8")


def test_weights_that_do_not_fit(honest: dict[str, Path], tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load, save

    content = honest["lookup"].with_suffix(".safetensors").read_bytes()
    state = load(content)
    name = next(iter(state))
    changed = {
        "not a whole safetensors file": content[: len(content) // 2],
        "is missing": save({name + "2": state[name]}),
        "is not part of it": save({**state, "zzz": torch.zeros(2)}),
        "is int64[36, 6], and the model has float32[36, 6]": save({name: state[name].long()}),
        "storage_bits of its size are": save({name: state[name].double()}),
    }
    paths = []
    for number, other in enumerate(changed.values()):
        (tmp_path / str(number)).mkdir()
        paths.append(copy(honest["lookup"], tmp_path / str(number)))
        rewrite_weights(paths[-1], other)
    for words, verdict in zip(changed, verify(paths, Selection(), jobs=2), strict=True):
        assert verdict.outcome == FAILED
        assert words in verdict.reason


def test_missing_weights_and_files_that_are_no_records(honest: dict[str, Path], tmp_path: Path) -> None:
    path = copy(honest["aot"], tmp_path)
    path.with_suffix(".safetensors").unlink()
    verdict = verify_file(path, Selection())
    assert (verdict.outcome, "cannot be read: No such file" in verdict.reason) == (FAILED, True)
    path.write_text("{", encoding="utf-8")
    assert verify_file(path, Selection()).outcome == FAILED
    unknown = Selection(blocked=("aot",))
    verdict = verify_file(honest["aot"], unknown)
    assert (verdict.outcome, "'aot' is not available" in verdict.reason) == (UNCHECKED, True)


def test_a_task_of_another_version_cannot_be_checked(honest: dict[str, Path], tmp_path: Path) -> None:
    record = read(honest["aot"])
    record = replace(record, task={**record.task, "version": 99})
    path = copy(honest["aot"], tmp_path)
    path.write_text(replace(record, id=Point.of(record).id).to_json(), encoding="utf-8")
    verdict = verify_file(path, Selection())
    assert (verdict.outcome, "version 99 of task bigram" in verdict.reason) == (UNCHECKED, True)


def test_a_model_that_takes_too_long_costs_its_own_row(honest: dict[str, Path]) -> None:
    verdict = verify_file(honest["aot"], Selection(), timeout=0.001)
    assert (verdict.outcome, "gave no answer in" in verdict.reason) == (UNCHECKED, True)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"not json", "the process of its model sent what is not JSON"),
        (b"[" * 100_000, "the process of its model sent what is not JSON"),
        (b"[1]", "the process of its model sent what is not an answer"),
        (b'{"error": "x"}', "its model cannot be rebuilt and asked: x"),
        (None, "the process of its model ended without a word"),
    ],
)
def test_a_process_that_dies_or_sends_nonsense_makes_its_record_fail(sent: bytes | None, words: str) -> None:
    ours, theirs = multiprocessing.Pipe()
    if sent is not None:
        theirs.send_bytes(sent)
    theirs.close()
    with pytest.raises(Failed, match=words):
        hear(ours, "model")
    ours.close()


def test_a_folder_is_needed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist; a submission is made by: membench submit"):
        record_files(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no records in"):
        record_files(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file; name the folder"):
        record_files(tmp_path / "file")


def test_logits_that_may_be_off_allow_only_near_ties_to_flip() -> None:
    from types import SimpleNamespace

    from membench.verify.checks import EXACT, allowances

    inputs = np.arange(4)[:, None]
    facts = Facts(inputs, np.zeros(4, dtype=np.int64), np.array([0.1, 0.004, 0.496, 0.4]), vocab=4)
    metrics = {"bits": 4.0, "kl": 0.5}
    model: Any = SimpleNamespace(margins=np.array([1.0, 1e-6, 0.5, 2.0]), largest=np.ones(4), rounding=0.0)
    exact = allowances(metrics, facts, 10, model, True)
    assert exact["accuracy"] < 1e-8  # in an environment like the recorded one nothing may flip
    loose = allowances(metrics, facts, 10, model, False)
    assert loose["accuracy"] == pytest.approx(0.004)
    assert loose["kl"] == pytest.approx(2e-5 + EXACT)
    assert loose["bits_per_parameter"] == pytest.approx(loose["bits"] / 10)


def test_neither_a_huge_logit_nor_ties_everywhere_make_every_number_acceptable() -> None:
    from types import SimpleNamespace

    from membench.verify.checks import MAX_SLACK, allowances

    facts = Facts(np.arange(4)[:, None], np.zeros(4, dtype=np.int64), np.full(4, 0.25), vocab=4)
    metrics = {"bits": 4.0, "kl": 0.5}
    huge: Any = SimpleNamespace(margins=np.full(4, 1.0), largest=np.array([1e12, 1.0, 1.0, 1.0]), rounding=0.0)
    assert allowances(metrics, facts, 10, huge, False)["kl"] < MAX_SLACK * math.log(4)
    assert allowances(metrics, facts, 10, huge, False)["accuracy"] == pytest.approx(MAX_SLACK)
    tied: Any = SimpleNamespace(margins=np.zeros(4), largest=np.zeros(4), rounding=0.0)
    assert allowances(metrics, facts, 10, tied, False)["accuracy"] == pytest.approx(MAX_SLACK)


def mark(path: Path, **metrics: float) -> Mark:
    entry = read_entry(path)
    return Mark(entry, {**entry.record.metrics, **metrics}, entry.record.size, entry.record.bounds)


def marked_folder(honest: dict[str, Path], folder: Path) -> Path:
    folder.mkdir()
    path = copy(honest["aot"], folder)
    write_marks(folder, [mark(path)])
    return path


def verified(*folders: Path) -> list[str]:
    """The files below some folders that count as verified."""
    entries, _ = read_entries(folders)
    return [one.source for one in entries if one.verified]


def test_a_mark_is_lost_when_its_record_is_edited(honest: dict[str, Path], tmp_path: Path) -> None:
    path = marked_folder(honest, tmp_path / "one")
    assert verified(tmp_path / "one") == [str(path)]
    path.write_text(path.read_text("utf-8") + " ", encoding="utf-8")
    assert verified(tmp_path / "one") == []


def test_a_mark_counts_in_the_folder_that_is_named_and_not_below(honest: dict[str, Path], tmp_path: Path) -> None:
    marked_folder(honest, tmp_path / "one")
    assert verified(tmp_path) == []


def test_a_marked_record_has_the_numbers_that_were_measured(honest: dict[str, Path], tmp_path: Path) -> None:
    path = marked_folder(honest, tmp_path / "one")
    write_marks(path.parent, [mark(path, accuracy=0.125)])
    (entry,) = read_entries([path.parent])[0]
    assert (entry.verified, entry.record.metrics["accuracy"]) == (True, 0.125)
    write_marks(path.parent, [mark(path, accuracy=5)])  # no accuracy: no mark
    assert verified(path.parent) == []


def test_a_mark_is_for_the_bytes_of_a_record_and_not_for_its_trial(honest: dict[str, Path], tmp_path: Path) -> None:
    path = marked_folder(honest, tmp_path / "one")
    (tmp_path / "two").mkdir()
    twin = copy(honest["aot"], tmp_path / "two")
    assert verified(tmp_path / "one", tmp_path / "two") == [str(path), str(twin)]
    record = read(path)
    twin.write_text(replace(record, trace={**record.trace, "steps": 1}).to_json(), encoding="utf-8")
    assert verified(tmp_path / "one", tmp_path / "two") == [str(path)]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "records": [7, {"file": "../x.json"}]}'])
def test_marks_in_doubt_are_no_marks(text: str, honest: dict[str, Path], tmp_path: Path) -> None:
    marked_folder(honest, tmp_path / "one")
    (tmp_path / "one" / "verified.json").write_text(text, encoding="utf-8")
    assert verified(tmp_path / "one") == []


def say(path: Path, size: dict[str, Any]) -> None:
    path.write_text(replace(read(path), size=size).to_json(), encoding="utf-8")


def test_what_a_question_costs_is_verified_for_built_in_models(tmp_path: Path) -> None:
    registry = Registry()
    (path,) = run(registry, tmp_path, models=["lookup"])
    size = read(path).size
    assert (size["active"], size["flops"], size["state"]) == (6, 0, None)
    assert size["code_bytes"] == registry.code_bytes("lookup") > 0
    (verdict,) = verify([path], Selection(), 1)
    assert (verdict.outcome, verdict.size) == (VERIFIED, size)
    for name in ("active", "flops", "state"):
        say(path, {**size, name: 5})
        (verdict,) = verify([path], Selection(), 1)
        assert verdict.outcome == FAILED
        assert f"the {name} of its size are" in verdict.reason
    say(path, {**size, "code_bytes": 5})  # of another comment in its source, say
    (verdict,) = verify([path], Selection(), 1)
    assert (verdict.outcome, verdict.size) == (VERIFIED, size)


def test_what_a_plugin_says_of_its_questions_is_not_believed(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(CHEATS)
    selection = Selection(files=(str(plugin),))
    (path,) = run(Registry(selection), tmp_path / "out", models=["cheat"])
    assert read(path).size["flops"] == 0
    say(path, {**read(path).size, "active": 1, "state": 1, "code_bytes": 1})
    (verdict,) = verify([path], selection, 1)
    assert verdict.outcome == VERIFIED, verdict.reason
    assert [verdict.size[name] for name in ("active", "flops", "state")] == [None, None, None]
    assert verdict.size["code_bytes"] == len(bz2.compress(CHEATS.encode()))
    assert verdict.entry
    write_marks(tmp_path / "out", [Mark(verdict.entry, verdict.metrics, verdict.size, verdict.bounds)])
    (entry,), _ = read_entries([tmp_path / "out"])
    assert entry.verified
    assert (entry.record.size["active"], entry.record.size["flops"]) == (None, None)
