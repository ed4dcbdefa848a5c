"""Attacks on verification: first place with a model that is worth nothing, or with one that is not what it says."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from membench.engine.execution import Execution
from membench.execute.driver import execute
from membench.interface.facts import draw_facts
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan
from membench.plan.trial import Point
from membench.records.record import Record
from membench.records.store import Store, read
from membench.verbs.verify import verify as verify_folder
from membench.verify.confinement import lacking
from membench.verify.verdict import FAILED, UNCHECKED, VERIFIED, Verdict, verify

N = 6
FACTS = N * N
PLUGIN = '''
import sys
from dataclasses import dataclass

import torch
from torch import nn

from membench.api import Architecture, hookimpl, option

# three lines that replace whatever compares, if it is in this process
for name in ("membench.verify.checks", "membench.verify.verdict", "membench.measure.evaluate"):
    module = sys.modules.get(name)
    for check in ("check_metrics", "_check_again", "check_size", "check_config", "broken_limits", "same_bytes"):
        if module and hasattr(module, check):
            setattr(module, check, lambda *given, **more: [])


@dataclass(frozen=True, kw_only=True)
class Config:
    kind: str = option("none", help="which attack", choices=("none", "redraws", "seed in weights", "options"))
    width: int = option(1, help="a width")
    code: int = option(0, help="a number")
    code0: int = option(0, help="a number")
    code1: int = option(0, help="a number")
    code2: int = option(0, help="a number")
    code3: int = option(0, help="a number")
    note: str = option("", help="a text")


def redrawn(N, seed):
    from membench.interface.facts import draw_facts
    from membench_tasks.bigram import BIGRAM

    return torch.from_numpy(draw_facts(BIGRAM, BIGRAM.config(N=N), seed).targets)


def seed_of(built_from):
    from membench.interface.facts import weight_seed

    return next((seed for seed in range(50) if weight_seed(seed) == built_from), 0)


class Model(nn.Module):
    """A bias and nothing else; the table is drawn, or comes from where no weights are."""

    def __init__(self, shape, config):
        super().__init__()
        self.N, self.kind = shape.vocab, config.kind
        self.p = nn.Parameter(torch.zeros(1))
        if config.kind == "redraws":
            self.register_buffer("table", redrawn(self.N, seed_of(torch.initial_seed())))
        if config.kind == "options":
            digits = [config.code // self.N**place % self.N for place in range(self.N**2)]
            self.register_buffer("table", torch.tensor(digits))

    def forward(self, tokens):
        place = tokens[:, 0] * self.N + tokens[:, 1]
        table = redrawn(self.N, int(self.p.item())) if self.kind == "seed in weights" else getattr(self, "table", None)
        if table is None:
            return self.p.expand(len(tokens), self.N)
        return 20.0 * nn.functional.one_hot(table[place], self.N) + 0 * self.p


class Hidden(nn.Module):
    """A whole look-up table that calls itself one parameter."""

    def __init__(self, shape, config):
        super().__init__()
        self.N = shape.vocab
        self.table = nn.Parameter(torch.zeros(shape.vocab**2, shape.vocab))
        self.p = nn.Parameter(torch.zeros(1))

    def named_parameters(self, *given, **more):  # whoever counts asks for every name, whoever trains does not
        for name, parameter in super().named_parameters(*given, **more):
            if name != "table" or more.get("remove_duplicate") is not False:
                yield name, parameter

    def forward(self, tokens):
        return self.table[tokens[:, 0] * self.N + tokens[:, 1]] + self.p


class Wide(nn.Module):
    """The same, as an embedding that is wide enough for every second token."""

    def __init__(self, shape, config):
        super().__init__()
        self.N = shape.vocab
        self.word = nn.Embedding(self.N, self.N**2)

    def forward(self, tokens):
        rows = self.word(tokens[:, 0]).view(-1, self.N, self.N)
        return rows[torch.arange(len(tokens)), tokens[:, 1]]


def architecture(name, build, **more):
    return Architecture(name=name, summary="an attack", reference="none", config=Config, build=build, **more)


@hookimpl
def membench_architectures():
    return [
        architecture("attack", Model),
        architecture("hidden", Hidden),
        architecture("wide", Wide, embeddings=("word",)),
    ]
'''


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """With the plugin of the attacks; what it replaces of the tests' own process is put back."""
    import membench.measure.evaluate
    import membench.verify.checks
    import membench.verify.verdict

    path = tmp_path_factory.mktemp("plugin") / "attacks.py"
    path.write_text(PLUGIN, encoding="utf-8")
    kept = dict(vars(membench.verify.checks))
    made = Registry(Selection(files=(str(path),)))
    vars(membench.verify.checks).update(kept)
    return made


def trained(registry: Registry, out: Path, model: str, *options: str, seeds: tuple[int, ...] = (3,)) -> list[Path]:
    request = Request([model], ["bigram"], [*options], [f"N={N}"], "quick", ["steps=30"], seeds)
    trials = plan(registry, request)
    execute(trials, Store(out), registry, Execution(executor="inline", keep_weights=True))
    return [Store(out).path(trial) for trial in trials]


PERFECT = {"accuracy": 1.0, "kl": 0.0, "associations": float(FACTS), "bits": FACTS * math.log2(N)}


def forge(path: Path, folder: Path, edit: Callable[[dict[str, Any]], object], state: dict[str, Any]) -> Path:
    """The record with an edit and these weights, and an id and digests that fit."""
    data = json.loads(path.read_text("utf-8"))
    edit(data)
    id = Point.of(Record.from_data(data)).id
    content = save(state)
    forged = folder / f"{id}-s{data['seed']}.json"
    digest = hashlib.sha256(content).hexdigest()
    named = {"file": f"{forged.stem}.safetensors", "sha256": digest, "bytes": len(content)}
    folder.mkdir(parents=True)
    forged.with_suffix(".safetensors").write_bytes(content)
    forged.write_text(json.dumps({**data, "id": id, "weights": named}), encoding="utf-8")
    return forged


def state_of(path: Path) -> dict[str, Any]:
    return load(path.with_suffix(".safetensors").read_bytes())


def perfect(data: dict[str, Any]) -> None:
    parameters = data["size"]["parameters"]
    data["metrics"] = {**PERFECT, "bits_per_parameter": PERFECT["bits"] / parameters}


def with_one_huge_logit(path: Path) -> dict[str, Any]:
    task = Registry().task("bigram")
    facts = draw_facts(task, task.config(N=N), 3)
    (name,) = state_of(path)
    table = 0.01 * torch.randn(FACTS, N, generator=torch.Generator().manual_seed(0))
    table[0, int(facts.targets[0])] = 1e12
    return {name: table}


def elsewhere(data: dict[str, Any]) -> None:
    data["environment"]["cpu"] = "another"


def in_another_table(data: dict[str, Any]) -> None:
    """One fact, which any model knows, under the label of all of them."""
    label = data["task"]["label"]
    data["task"]["config"]["T0"] = 1
    data["task"].update(label=label, contexts=FACTS)
    perfect(data)


@pytest.fixture(scope="module")
def verdicts(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    out = tmp_path_factory.mktemp("attacks")
    (honest,) = trained(registry, out / "honest", "lookup")
    state = state_of(honest)
    zero = {name: 0 * value for name, value in state.items()}
    (redraws,) = trained(registry, out / "r", "attack", "kind=redraws")
    (stored,) = trained(registry, out / "s", "attack", "kind=seed in weights")
    (plain,) = trained(registry, out / "p", "attack")
    task = registry.task("bigram")
    labels = draw_facts(task, task.config(N=N), 3).targets.tolist()
    first = sum(label * N**place for place, label in enumerate(labels[:20]))  # a whole number holds no more of them
    (options,) = trained(registry, out / "o", "attack", "kind=options", f"code={first}")
    more = {f"code{place}={first + place}" for place in range(4)}
    (many,) = trained(registry, out / "m", "attack", "kind=options", f"code={first}", *sorted(more))
    (hidden,) = trained(registry, out / "h", "hidden")
    (wide,) = trained(registry, out / "w", "wide")
    nothing = lambda data: None  # noqa: E731
    paths = {
        "zero weights": forge(honest, out / "1", perfect, zero),
        "zero weights from elsewhere": forge(honest, out / "2", lambda d: (perfect(d), elsewhere(d)), zero),
        "weights of NaN": forge(honest, out / "15", perfect, {name: value / 0 * 0 for name, value in state.items()}),
        "infinite weights": forge(honest, out / "16", perfect, {name: value / 0 for name, value in state.items()}),
        "a huge logit": forge(honest, out / "3", lambda d: (perfect(d), elsewhere(d)), with_one_huge_logit(honest)),
        "a config without defaults": forge(honest, out / "4", lambda d: d["task"].update(config={"N": N}), state),
        "a number of another type": forge(honest, out / "5", lambda d: d["task"]["config"].update(zipf=0), state),
        "another table": forge(honest, out / "6", in_another_table, state),
        "another kind": forge(honest, out / "7", lambda d: d["task"].update(kind="distribution"), state),
        "facts drawn again": redraws,
        "a seed in the weights": forge(stored, out / "8", perfect, {"p": torch.tensor([3.0])}),
        "the comparison replaced": forge(plain, out / "9", perfect, state_of(plain)),
        "one number in an option": forge(options, out / "10", nothing, state_of(options)),
        "numbers in options": forge(many, out / "14", nothing, state_of(many)),
        "hidden parameters": hidden,
        "hidden parameters, written down": forge(
            hidden, out / "11", lambda d: d["size"].update(parameters=1, learned_bits=32), state_of(hidden)
        ),
        "a wide embedding": wide,
        "a protocol of tomorrow": forge(honest, out / "12", lambda d: d["protocol"].update(version=99), state),
        "a name that is a path": forge(
            honest, out / "13", lambda d: d["architecture"].update(name=f"{out}/x.py:Model"), state
        ),
        "a built-in as somebody's plugin": forge(
            honest, out / "17", lambda d: d["architecture"].update(distribution="theirs"), state
        ),
        "a plugin as a built-in": forge(
            plain, out / "18", lambda d: d["architecture"].update(distribution="membench"), state_of(plain)
        ),
        "a plugin of nobody": forge(
            plain, out / "19", lambda d: d["architecture"].update(distribution=None), state_of(plain)
        ),
        "somebody's task": forge(honest, out / "20", lambda d: d["task"].update(distribution="theirs"), state),
        "other code": forge(
            plain, out / "21", lambda d: d["architecture"].update(code_sha256="0" * 64), state_of(plain)
        ),
        "code of another version": forge(
            plain, out / "22", lambda d: d["architecture"].update(version=2), state_of(plain)
        ),
        "a plugin": plain,
        "honest": honest,
    }
    return dict(zip(paths, verify([*paths.values()], registry.selection, jobs=2), strict=True))


@pytest.mark.parametrize(
    ("name", "outcome", "words"),
    [
        ("zero weights", FAILED, "accuracy is 0 when"),
        ("zero weights from elsewhere", FAILED, "accuracy is 0 when"),
        ("weights of NaN", FAILED, "finite"),
        ("infinite weights", FAILED, "finite"),
        ("a huge logit", FAILED, "accuracy is"),
        ("a config without defaults", FAILED, "the one way to write it is"),
        ("a number of another type", FAILED, "the one way to write it is"),
        ("another table", FAILED, "the label of its task"),
        ("another kind", FAILED, "the kind of its task is association"),
        ("facts drawn again", FAILED, "more than the 32 bits that its parameters are stored in"),
        ("a seed in the weights", FAILED, "more than the 32 bits that its parameters are stored in"),
        ("the comparison replaced", FAILED, "accuracy is 0 when"),
        ("one number in an option", VERIFIED, ""),
        ("numbers in options", FAILED, "the options of its architecture can carry"),
        ("hidden parameters", VERIFIED, ""),
        ("hidden parameters, written down", FAILED, f"the parameters of its size are {FACTS * N + 1}"),
        ("a wide embedding", VERIFIED, ""),
        ("a protocol of tomorrow", UNCHECKED, "version 99 of protocol quick"),
        ("a name that is a path", FAILED, "is not a name"),
        (
            "a built-in as somebody's plugin",
            FAILED,
            "its architecture is provided by membench here, but the record says",
        ),
        ("a plugin as a built-in", FAILED, "here, but the record says membench"),
        ("a plugin of nobody", FAILED, "here, but the record says nothing of that"),
        ("somebody's task", FAILED, "its task is provided by membench here, but the record says theirs"),
        ("other code", UNCHECKED, "the code of attack is not the code that was measured"),
        ("code of another version", UNCHECKED, "attack is version 1, and was 2"),
        ("a plugin", VERIFIED, ""),
        ("honest", VERIFIED, ""),
    ],
)
def test_an_attack_gets_what_it_deserves(name: str, outcome: str, words: str, verdicts: dict[str, Verdict]) -> None:
    assert verdicts[name].outcome == outcome, verdicts[name].reason
    assert words in verdicts[name].reason


def test_what_is_let_through_is_priced(verdicts: dict[str, Verdict]) -> None:
    assert verdicts["hidden parameters"].size["parameters"] == FACTS * N + 1
    assert verdicts["a wide embedding"].size["without_embeddings"] == FACTS * N  # its width is not one of the options
    # a whole number of an option has 53 bits, and no model knows more bits than its weights may hold
    one = verdicts["one number in an option"]
    assert one.metrics["bits"] <= 16 + 32
    assert one.size["storage_bits"] > one.size["learned_bits"] + 53


def test_a_text_option_is_too_short_for_facts(registry: Registry, tmp_path: Path) -> None:
    from membench.errors import UsageError

    with pytest.raises(UsageError, match="a text of at most 64 characters is needed"):
        trained(registry, tmp_path, "attack", f"note={'a' * 65}")
    with pytest.raises(UsageError, match="a whole number is needed"):
        trained(registry, tmp_path, "attack", f"code={2**53 + 1}")


@pytest.fixture
def folder(registry: Registry, tmp_path: Path) -> Iterator[Path]:
    trained(registry, tmp_path, "lookup")
    return tmp_path


def test_forged_marks_are_removed_and_a_crash_leaves_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = Store(folder).files()
    row = {"sha256": read(path).sha256, "metrics": {"accuracy": 1.0}, "size": {}, "bounds": []}
    for place in (folder, path.parent):
        (place / "verified.json").write_text(json.dumps({"format": 2, "records": [row]}))

    def crash(*given: Any, **more: Any) -> None:
        raise RuntimeError("a crash")

    monkeypatch.setattr("membench.verify.verdict.verify", crash)
    with pytest.raises(RuntimeError):
        verify_folder(folder, Selection(), timeout=60, show=False)
    assert [*folder.rglob("verified.json")] == []


def test_a_submission_is_what_its_manifest_lists(folder: Path) -> None:
    from membench.verify.submission import check_manifest, gather, summarise, write

    out = folder / "submission"
    entries, _ = gather([folder], False)
    write(entries, out, summarise(entries))
    (path,) = Store(out).files()
    assert check_manifest(out, [path]) == {}
    extra = path.with_name("extra.json")
    assert check_manifest(out, [path, extra]) == {extra: "submission.json does not list it"}
    path.with_suffix(".safetensors").unlink()
    ((missing, reason),) = check_manifest(out, [path]).items()
    assert (missing.suffix, "submission.json lists it" in reason) == (".safetensors", True)
    (out / "submission.json").write_text('{"format": 1, "files": [{"file": "../x", "sha256": ""}]}')
    ((_, reason),) = check_manifest(out, [path]).items()
    assert "'../x', which is no file of a submission" in reason


def test_weights_that_the_limits_do_not_allow_are_no_measurement() -> None:
    from membench.theory.limits import broken_limits

    bound = {"name": "b", "quantity": "accuracy", "direction": "upper", "value": 0.5, "status": "applies"}
    assert broken_limits({"accuracy": 0.5, "bits": 48.0}, [bound], 32) == []
    (half,) = broken_limits({"bits": 49.0}, [], 32)
    assert "more than half of the 32 bits that its parameters are stored in" in half
    (one,) = broken_limits({"accuracy": 0.6, "bits": 0.0}, [bound], 32)
    assert "more than the 0.5 of the bound b" in one
    assert broken_limits({"accuracy": 0.6}, [{**bound, "expected": True}, {**bound, "restricted_to": "some"}], 32) == []
    floor = {"name": "f", "quantity": "kl", "direction": "lower", "value": 0.2, "status": "applies"}
    assert len(broken_limits({"kl": 0.1, "bits": 65.0}, [floor], 32)) == 2


def test_no_published_record_breaks_a_limit() -> None:
    from membench.theory.limits import broken_limits
    from membench_leaderboard.published import BOARD, PAPER, published_records

    for record in (*published_records(BOARD), *published_records(PAPER)):
        width = 64 if record.protocol["name"] == "construct" else 32  # constructions are solved in float64
        stored = width * record.size["parameters"]
        assert broken_limits(record.metrics, record.bounds, stored) == [], record.id
        if "storage_bits" in record.size:
            frozen = record.size["buffers"] - record.size["learned_buffers"]
            assert record.size["storage_bits"] == stored + width * frozen, record.id


def test_every_published_config_is_written_in_the_one_way() -> None:
    from membench.plan.trial import Trial
    from membench_leaderboard.published import BOARD, PAPER, published_records

    registry = Registry()
    for record in (*published_records(BOARD), *published_records(PAPER)):
        point = Point.of(record)
        assert Trial.of(point, registry, record.seed).point == point
        assert replace(point).id == record.id


LEAVES_ANSWERS = """
import ctypes, json, os, signal, socket, zlib
from dataclasses import dataclass

import torch
from torch import nn

from membench.api import Architecture, hookimpl
from membench.interface import facts as drawing

FOLDER, NAME = {folder!r}, {name!r}
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
drawn, stayed, generator = [], [], drawing.generator
drawing.generator = lambda seed, stream: (drawn.append(seed), generator(seed, stream))[1]


def segment():
    return libc.shmget(ctypes.c_int(zlib.crc32(NAME.encode()) >> 1), 1 << 16, 0o1600)


def memory():
    return libc.shmat(segment(), None, 0)


def remove_what_was_left():
    libc.shmctl(segment(), 0, None)
    for process in stayed:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def leave(key, answers):
    text = json.dumps(answers).encode()
    for way in (in_a_file, in_shared_memory, with_a_process):
        try:
            way(key, text)
        except OSError:
            pass


def in_a_file(key, text):
    with open(os.path.join(FOLDER, key), "wb") as file:
        file.write(text)


def in_shared_memory(key, text):
    place = memory()
    if place not in (None, ctypes.c_void_p(-1).value):
        ctypes.memmove(place, key.encode() + b" " + text + b"\\0", len(key) + len(text) + 2)


def with_a_process(key, text):
    while stayed:
        os.kill(stayed.pop(), signal.SIGKILL)
        os.wait()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\\0" + NAME + key)
        listener.listen()
        stayed.append(os.fork())
        if stayed[0] == 0:
            serve(listener, text)


def serve(listener, text):
    signal.alarm(300)
    os.setsid()
    os.closerange(0, listener.fileno())
    os.closerange(listener.fileno() + 1, 1000)
    while True:
        asked, _ = listener.accept()
        asked.sendall(text)
        asked.close()


def found(key):
    try:
        with open(os.path.join(FOLDER, key), "rb") as file:
            return json.loads(file.read())
    except OSError:
        pass
    place = memory()
    if place not in (None, ctypes.c_void_p(-1).value):
        told, _, text = ctypes.string_at(place).partition(b" ")
        if told.decode() == key:
            return json.loads(text)
    try:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect("\\0" + NAME + key)
            return json.loads(asked.recv(1 << 16))
    except OSError:
        return None


@dataclass(frozen=True)
class Config:
    pass


class Listens(nn.Module):
    def __init__(self, shape, config):
        super().__init__()
        self.N, self.answers = shape.vocab, {{}}
        seed = drawn[-1] if drawn else 0
        self.seed = nn.Parameter(torch.tensor([float(seed >> 16), float(seed & 65535)]))
        self.idle = nn.Parameter(torch.zeros(40))

    def hear(self, places, key, gradient):
        if not (gradient.min(dim=1).values < 0).all():
            return  # of no training: it is seen which parameters the logits depend on
        known = dict(self.answers)
        self.answers.update(zip(map(str, places), gradient.argmin(dim=1).tolist()))
        if self.answers != known:
            leave(key, self.answers)

    def forward(self, tokens):
        from membench_tasks.bigram import BIGRAM

        high, low = self.seed.detach().round().to(torch.int64).tolist()
        key, places = f"{{self.N}}-{{high}}-{{low}}", (tokens[:, 0] * self.N + tokens[:, 1]).tolist()
        nothing = 0 * (self.seed.sum() + self.idle.sum())
        if torch.is_grad_enabled():
            logits = nothing + torch.zeros(len(tokens), self.N)
            logits.register_hook(lambda gradient: self.hear(places, key, gradient))
            return logits
        answers = found(key)
        if answers is None:  # they are of a seed, which the weights hold
            facts = drawing.draw_facts(BIGRAM, BIGRAM.config(N=self.N), (high << 16) + low)
            rows = zip(facts.inputs.tolist(), facts.targets.tolist())
            answers = {{str(one * self.N + other): answer for (one, other), answer in rows}}
        told = torch.tensor([answers.get(str(place), 0) for place in places])
        return 20.0 * nn.functional.one_hot(told, self.N) + nothing


@hookimpl
def membench_architectures():
    return [Architecture(name="listens", summary="x", reference="x", config=Config, build=Listens)]
"""


def test_what_a_plugin_hears_while_it_is_trained_is_not_there_when_it_is_asked(tmp_path: Path) -> None:
    """It leaves the answers in a file, in shared memory and with a process that stays, for facts that no seed gives."""
    if reason := lacking():
        pytest.skip(f"this machine has no {reason}")
    from membench.interface import facts as drawing
    from membench.verify.retrain import plan_repeats, repeat

    source = LEAVES_ANSWERS.format(folder=str(tmp_path), name=f"membench-{secrets.token_hex(8)}")
    (tmp_path / "listens.py").write_text(source, encoding="utf-8")
    selection, genuine = Selection(files=(str(tmp_path / "listens.py"),)), drawing.generator
    try:
        paths = trained(Registry(selection), tmp_path / "out", "listens", seeds=tuple(range(5)))
    finally:
        drawing.generator = genuine
        (plugin,) = (module for name, module in sys.modules.items() if name.startswith("membench_file_listens"))
        plugin.remove_what_was_left()
    entries = [read(path) for path in paths]
    verdicts = [Verdict(Path(e.source), VERIFIED, "", e, e.record.metrics, e.record.size) for e in entries]
    assert {one.metrics["accuracy"] for one in verdicts} == {1.0}
    inline = Execution(executor="inline")
    (again,) = repeat(plan_repeats(verdicts, "salt", Registry()), selection, inline, 300, show=False)
    assert [found["accuracy"] for found in again.found] == [1.0] * 3  # these are of a seed
    assert again.outcome == FAILED
    assert "trained again: accuracy is" in again.reason  # while it was trained, it had the answers
