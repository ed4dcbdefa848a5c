"""The checks, one function each: it returns when all is well, and raises a Problem or Advice when not."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from membench.conformance.subject import Subject, seeded
from membench.engine.general import GeneralTrainer, why_not_batched
from membench.errors import UsageError
from membench.interface.options import Option, options_of, validate
from membench.measure.evaluate import InvalidOutput, logits_of
from membench.measure.size import ALL, describe_fresh, float_type, is_under, measure_size, same_bytes
from membench.plan.budget import Budget, CannotBeBuilt, DoesNotFit, measure
from membench.records import weights

Outcome = Literal["passed", "advice", "failed", "not asked"]
SEED, OTHER_SEED = 11, 12
REPLICAS, STEPS = 5, 5  # of the training that shows what it costs to train one seed after the other


class Problem(Exception):
    """Something that membench expects and that is not so: what was seen, and how to fix it."""

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(what)
        self.what, self.mend = what, mend


class Advice(Problem):
    """Something that costs time or comfort, but no number is wrong for it."""


class NotAsked(Exception):
    """A check that makes no sense for this subject; the text says why."""


@dataclass(frozen=True)
class Result:
    """What became of one check. `why` says why it matters."""

    check: str
    expected: str
    outcome: Outcome
    what: str = ""
    why: str = ""
    mend: str = ""


@dataclass(frozen=True)
class Check:
    """One thing that membench expects of an architecture."""

    name: str
    expected: str
    why: str
    run: Callable[[Subject], None]

    def __call__(self, subject: Subject) -> Result:
        result = Result(self.name, self.expected, "passed")
        try:
            self.run(subject)
        except NotAsked as reason:
            return replace(result, outcome="not asked", what=str(reason))
        except Problem as problem:
            outcome: Outcome = "advice" if isinstance(problem, Advice) else "failed"
            return replace(result, outcome=outcome, what=problem.what, why=self.why, mend=problem.mend)
        except InvalidOutput as error:
            return replace(result, outcome="failed", what=_sentence(error), why=self.why, mend=_mend_output(str(error)))
        except (Exception, SystemExit) as error:  # whatever a plugin may raise
            what = f"it raised {type(error).__name__}: {_sentence(error)}{subject.place(error)}"
            mend = "run that line on its own: build the module, and call it on an int64 tensor [batch, length]"
            return replace(result, outcome="failed", what=what, why=self.why, mend=mend)
        return result


def _sentence(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _mend_output(text: str) -> str:
    if "NaN" in text:
        return "initialise all weights to small finite numbers, and divide by nothing that may be zero"
    if "shape" in text:
        return "return one row per context and one logit per answer: `shape.answers` wide, at the last position"
    return "return the tensor of logits alone, in a floating-point type"


# What a model answers ------------------------------------------------------------------------------------------------


def _logits(subject: Subject) -> None:
    tokens, module = subject.tokens(), subject.build()
    logits = subject.ask(module, tokens)
    subject.ask(module, tokens, training=True)
    wanted = float_type(module.state_dict())
    if str(logits.dtype) != f"torch.{wanted}":
        raise Problem(
            f"its weights are {wanted}, but its logits are {str(logits.dtype).removeprefix('torch.')}",
            f"compute in the type of the weights: name no dtype in forward, or end it with .to(torch.{wanted})",
        )


def _batch_size(subject: Subject) -> None:
    tokens, module = subject.tokens(), subject.build()
    together = subject.ask(module, tokens)
    for size in (1, 2, len(tokens) - 1):
        try:
            alone = subject.ask(module, tokens[:size])
        except InvalidOutput as error:
            raise Problem(
                f"for a batch of {size}, {error}", "never squeeze() all axes, and read no fixed batch"
            ) from None
        if not _alike(alone, together[:size]):
            raise Problem(
                f"in a batch of {size} a context is answered differently than in one of {len(tokens)}",
                "let no context see another: normalise over features and not over the batch when not training",
            )


def _no_state(subject: Subject) -> None:
    tokens = subject.tokens()
    half = len(tokens) // 2
    for training in (False, True):
        module = subject.build()
        answers = []
        for part in (tokens[:half], tokens[half:], tokens[:half]):
            with seeded(SEED):
                answers.append(subject.ask(module, part, training))
        if not _alike(answers[0], answers[2]):
            mode = "training" if training else "eval"
            raise Problem(
                f"asked the same question twice in {mode} mode, with another in between, it gives two answers"
                + _named(_unregistered(module), "; it keeps "),
                "start every forward from the same state: make what it carries along inside forward",
            )
        before = {name: value.clone() for name, value in module.state_dict().items()}
        subject.ask(module, tokens)
        changed = [name for name, value in module.state_dict().items() if not same_bytes(value, before.get(name))]
        if changed:
            raise Problem(f"being asked in eval mode changes {_list(changed)}", "change buffers only if self.training")


# Where its weights come from, and where they are kept ----------------------------------------------------------------


def _seed(subject: Subject) -> None:
    with _other_generators(1):
        one = _state(subject.build(SEED))
    with _other_generators(2):
        other = _state(subject.build(SEED))
    differing = [name for name, value in one.items() if not same_bytes(value, other.get(name))]
    if differing:
        raise Problem(
            f"two models of one seed differ in {_list(differing)}",
            "draw from torch's own generator, not from `random` or numpy, and leave no tensor as torch.empty made it",
        )
    module, tokens = subject.build(SEED), subject.tokens()
    answers = []
    for seed in (SEED, OTHER_SEED):
        with seeded(seed), _other_generators(seed):
            answers.append(subject.ask(module, tokens))
    if not torch.equal(*answers):
        raise Problem(
            "asked twice in eval mode, it answers differently",
            "be random only if self.training: nn.Dropout does so by itself",
        )


@contextmanager
def _other_generators(seed: int) -> Iterator[None]:
    """Python's and numpy's own generators at a seed, and afterwards as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _initialisation(subject: Subject) -> None:
    with seeded(SEED):
        own = subject.architecture.build(subject.shape, subject.config)
        if torch.initial_seed() != SEED:
            raise Problem(
                "building it seeds torch, so that every seed starts from the same weights",
                "leave out torch.manual_seed: membench seeds torch before it builds a model",
            )
    lazy = [name for name, p in own.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)]
    if lazy:
        raise Problem(f"{_list(lazy)} has no size before the first call", "give all sizes in __init__: no Lazy modules")
    first = {name: value.clone() for name, value in _state(own).items()}
    kept = _state(subject.build(SEED, dtype=float_type(first)))
    moved = [name for name, value in first.items() if not same_bytes(value, kept.get(name))]
    if moved:
        raise Problem(
            f"its own initialisation of {_list(moved)} is lost when the module is moved with .to()",
            "do not initialise in _apply, to or float",
        )
    parameters = {name for name, _ in own.named_parameters()}
    subject.ask(own, subject.tokens(), training=True)
    now = _state(own)
    changed = [
        name for name in now if name not in first or (name in parameters and not same_bytes(now[name], first[name]))
    ]
    if changed:
        raise Problem(
            f"its first call makes or changes {_list(changed)}",
            "make and initialise all parameters in __init__; forward only reads them",
        )


def _state_dict(subject: Subject) -> None:
    module, tokens = subject.build(SEED), subject.tokens()
    subject.train(module)
    state = module.state_dict()
    describe_fresh(module)  # TypeError for what is no tensor
    rebuilt = subject.build(OTHER_SEED)
    try:
        rebuilt.load_state_dict(weights.from_bytes(weights.to_bytes(state)))
    except (RuntimeError, ValueError) as error:
        raise Problem(
            f"its weights do not load into a model that was built anew: {_sentence(error)}",
            "register everything in __init__, under the same names whatever the seed; do not override state_dict",
        ) from None
    if not torch.allclose(subject.ask(module, tokens), subject.ask(rebuilt, tokens), rtol=1e-5, atol=1e-6):
        raise Problem(
            "a model that was built anew with its weights, from a safetensors file, answers differently"
            + _named(_unregistered(module), "; outside of its state dict are "),
            "keep what is learned in nn.Parameter, what is drawn once in register_buffer (persistent), "
            "and modules in nn.ModuleList",
        )


def _gradients(subject: Subject) -> None:
    module = subject.build(SEED)
    named = dict(module.named_parameters())
    frozen = [name for name, p in named.items() if not p.requires_grad]
    if frozen:
        raise Problem(f"{_list(frozen)} does not train", "use register_buffer for what stays as it is built")
    if not named:
        raise Problem(
            "it has no parameters", "register them as nn.Parameter, and modules as attributes or in a ModuleList"
        )
    module.eval()
    loss = torch.logsumexp(logits_of(module(subject.tokens())), dim=-1).sum()
    gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    unreached = [name for name, g in zip(named, gradients, strict=True) if g is None]
    if unreached:
        raise Problem(
            f"no gradient reaches {_list(unreached)}",
            "remove what the logits do not depend on, or use it; detach(), argmax and .data cut gradients off",
        )
    broken = [name for name, g in zip(named, gradients, strict=True) if g is not None and not torch.isfinite(g).all()]
    if broken:
        raise Problem(f"the gradient of {_list(broken)} is not finite", "look for a division by zero or sqrt at 0")


def _parameters(subject: Subject) -> None:
    architecture, shape = subject.architecture, subject.shape
    module = subject.build(SEED)
    counts = {
        "built": measure_size(module, shape, architecture.embeddings).parameters,
        "built with another seed": measure_size(subject.build(OTHER_SEED), shape).parameters,
    }
    subject.train(module)
    counts["trained"] = measure_size(module, shape).parameters
    if len(set(counts.values())) > 1:
        seen = ", ".join(f"{count:,} {when}" for when, count in counts.items())
        raise Problem(
            f"its number of parameters changes: {seen}", "make all parameters in __init__, from the config alone"
        )
    aliases = _aliases(subject.build(SEED))
    if aliases:
        one, other = aliases[0]
        raise Problem(
            f"'{other}' lies in the memory of '{one}' but is another parameter: it counts, trains and loads on its own",
            "tie weights by giving both modules the same nn.Parameter: self.head.weight = self.word.weight",
        )
    names = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    idle = [p for p in architecture.embeddings if not any(is_under(name, p) for name in names)]
    if idle:
        what = f"embeddings={_list(idle)} names no parameter"
        mend = f"use prefixes of its parameters, which are: {', '.join(names[:8])}"
        if len(idle) < len(architecture.embeddings):  # a family may have other tables with other options
            raise Advice(f"{what} with these options", mend)
        raise Problem(what, mend)
    try:
        measure(architecture, subject.config, shape, ALL.word)
    except CannotBeBuilt as error:
        raise Advice(
            f"under torch.device('meta'), where --budget and tune count it, it cannot be built: {_sentence(error)}",
            "read no numbers from tensors in __init__: use math or numpy for them",
        ) from None


# How it trains, moves and is declared --------------------------------------------------------------------------------


def _replicas(subject: Subject) -> None:
    reason = why_not_batched(subject.build().train(), subject.facts())
    if reason is None:
        return
    one, several = (_seconds_per_step(subject, count) for count in (1, REPLICAS))
    cost = f"a step takes {1000 * one:.2g} ms for one setting and {1000 * several:.2g} ms for {REPLICAS}"
    raise Advice(f"settings are trained one by one: {reason}; {cost}", _mend_batching(reason))


def _seconds_per_step(subject: Subject, replicas: int) -> float:
    modules = [subject.build(seed) for seed in range(replicas)]
    betas = np.array([(0.9, 0.999)] * replicas, dtype=np.float32)
    with seeded(SEED):
        trainer = GeneralTrainer(modules, [subject.facts()] * replicas, betas)
        started = time.perf_counter()
        trainer.advance(np.full((replicas, STEPS), 1e-3, dtype=np.float32))
    return (time.perf_counter() - started) / STEPS


def _mend_batching(reason: str) -> str:
    if "dropout" in reason:
        return "make p an option and 0 by default: what is to be memorised cannot be overfit"
    if "batch norm" in reason or "buffers" in reason:
        return "use layer norm or RMS norm, which keep nothing"
    return "no .item(), no `if` on tensors, no writing into tensors: torch.where, masks and new tensors do the same"


def _device(subject: Subject) -> None:
    """On a device that is not the one it was built on: a GPU where there is one, else 'meta', which has no numbers."""
    device = "cuda" if torch.cuda.is_available() else "meta"
    module = subject.build().eval().to(device)
    tokens = subject.tokens().to(device)
    try:
        with torch.no_grad(), _OneDevice():  # type: ignore[no-untyped-call]
            logits = module(tokens)
        left = logits.device.type != device
    except Exception as error:
        if device == "meta" and not _is_about_devices(error):  # it reads numbers, and there are none
            _double(subject)
            return
        raise Problem(
            f"moved to another device, it raised {type(error).__name__}: {_sentence(error)}{subject.place(error)}"
            + _named(_unregistered(module), "; not registered are "),
            "make tensors in forward with device=tokens.device, and keep the others in register_buffer",
        ) from None
    if left:
        raise Problem(
            "moved to another device, it answers on the one it was built on", "move nothing to a device yourself"
        )


class _OneDevice(TorchDispatchMode):
    """Refuses an operation on two devices, as a GPU does; 'meta' would let many of them pass."""

    MAY_MIX = ("copy", "index", "to")  # they move things, or take positions from anywhere

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor) and one.dim() > 0]
        devices = sorted({one.device.type for one in tensors})
        name = func.overloadpacket.__name__
        if len(devices) > 1 and not any(word in name for word in self.MAY_MIX):
            raise RuntimeError(f"expected all tensors on the same device, but {name} got {' and '.join(devices)}")
        return func(*args, **(kwargs or {}))


def _is_about_devices(error: Exception) -> bool:
    text = str(error).lower()
    return "device" in text and ("cpu" in text or "same device" in text)


def _double(subject: Subject) -> None:
    module = subject.build(dtype="float64")
    if subject.ask(module, subject.tokens()).dtype != torch.float64:
        raise Problem("moved to float64, it does not answer in float64", "name no dtype in forward")


def _config(subject: Subject) -> None:
    if not subject.declared:
        raise NotAsked("a class in a file declares no ranges")
    for name, one in options_of(subject.architecture.config).items():
        if not one.help:
            raise Problem(
                f"option '{name}' has no help", f"declare it with option(default, help=..): {name} is shown to people"
            )
        for value in _doubtful(one):
            _try_value(subject, name, value)


def _doubtful(one: Option) -> list[Any]:
    """Values that an option allows by what it declares, and that few models can be built with."""
    candidates: dict[type, list[Any]] = {int: [-1, 0], float: [-1.0], str: ["no-such-value"]}
    return [value for value in candidates.get(one.kind, []) if one.allows(value)]


def _try_value(subject: Subject, name: str, value: Any) -> None:
    """Refused by the config or by `check`, with ValueError, or else it builds and answers."""
    values = {one: getattr(subject.config, one) for one in options_of(subject.architecture.config)}
    automatic = {one for one, option in options_of(subject.architecture.config).items() if option.default is None}
    given = {one: old for one, old in values.items() if one not in automatic} | {name: value}
    try:
        config = subject.architecture.config(**given)
        validate(config, subject.architecture.name)
        if subject.architecture.check:
            subject.architecture.check(subject.shape, config)
    except (ValueError, UsageError):
        return
    try:
        subject.ask(subject.build(config=config), subject.tokens())
    except (Exception, SystemExit) as error:
        raise Problem(
            f"{name}={value} is accepted, and then the model fails: {type(error).__name__}: {_sentence(error)}",
            f"say what '{name}' may be: option(.., minimum=1), choices=(..), or a ValueError in __post_init__",
        ) from None


def _budget(subject: Subject) -> None:
    own = measure_size(subject.build(), subject.shape).parameters
    sizes = [_size_within(subject, parameters, own) for parameters in (own // 2, 2 * own, 5 * own)]
    if set(sizes) <= {own, None}:
        raise Advice(
            f"whatever the budget, it has {own:,} parameters: its size cannot be chosen",
            "declare for_budget, or an option of type int that makes it larger, such as a width",
        )


def _size_within(subject: Subject, parameters: int, own: int) -> int | None:
    """What it has within a budget; None for one that is too small."""
    try:
        config = Budget(max(parameters, 1)).config(subject.architecture, subject.shape)
    except DoesNotFit as error:
        if parameters < own:
            return None
        raise Problem(
            f"its defaults fit into {parameters:,} parameters, but: {error}",
            "return a config whose module has at most so many, with answers, biases and norms; raise ValueError where "
            "the budget is too small",
        ) from None
    return measure_size(subject.build(config=config), subject.shape).parameters


_LOADED_WITHOUT_TORCH = """
import json, sys, traceback
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch" and not seen:
            frames = [f for f in traceback.extract_stack()[:-1] if "importlib" not in f.filename]
            seen.append([frames[-1].filename, frames[-1].lineno])
            raise ImportError("seen; importing it would only take time")
seen = []
from membench.interface.registry import Registry, Selection
told = json.loads(sys.argv[1])
sys.meta_path.insert(0, Watch())
registry = Registry(Selection(files=tuple(told["files"]), allowed=tuple(told["allowed"])))
json.dump(seen, sys.stdout)
"""


def _declaration(subject: Subject) -> None:
    if not subject.declared:
        raise NotAsked("a class in a file is no declaration")
    plugin = subject.plugin
    told = {"files": list(subject.registry.selection.files), "allowed": [plugin.name]}
    command = [sys.executable, "-c", _LOADED_WITHOUT_TORCH, json.dumps(told)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise Problem(
            f"its plugin does not load in a new process: {done.stderr.strip()[-200:]}", "import it on its own"
        )
    for file, line in json.loads(done.stdout):
        raise Problem(
            f"its declaration imports torch ({os.path.basename(file)}, line {line})",
            "import torch in model.py alone, and declare build=lazy('your_package.model:Model')",
        )


# Helpers -------------------------------------------------------------------------------------------------------------


def _alike(one: Tensor, other: Tensor) -> bool:
    """Logits of the same contexts; in other company, a sum may be taken in another order."""
    return torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def _state(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.state_dict())


def _list(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _named(names: list[str], before: str) -> str:
    return before + _list(names) if names else ""


def _unregistered(module: nn.Module) -> list[str]:
    """Tensors and modules that torch does not know of: plain attributes, or in plain lists and dicts."""
    found = []
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if not name.startswith("_") and _holds_tensors(value):
                found.append(f"{path}.{name}".lstrip("."))
    return found


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_tensors(one) for one in value[:100])
    return isinstance(value, (Tensor, nn.Module))


def _aliases(module: nn.Module) -> list[tuple[str, str]]:
    """Pairs of different parameters in the same memory."""
    first: dict[int, str] = {}
    found = []
    for name, parameter in module.named_parameters():  # one name for each
        key = parameter.untyped_storage().data_ptr()
        if key and first.setdefault(key, name) != name:
            found.append((first[key], name))
    return found


CHECKS = (
    Check("logits", "one finite logit per answer, in the type of the weights",
          "nothing else can be trained or measured", _logits),
    Check("batch-size", "a context is answered alike in any batch",
          "facts are asked in batches of every size, and each counts for itself", _batch_size),
    Check("no-state", "an answer depends on the question and the weights alone",
          "a number must not depend on what was asked before", _no_state),
    Check("seed", "a seed decides the initial weights, and in eval mode nothing is random",
          "whoever runs your trial again must get your number", _seed),
    Check("initialisation", "its own initial weights are there before the first call",
          "membench never initialises: what build returns is what is trained", _initialisation),
    Check("state-dict", "all that it learns is in its state dict",
          "before it is measured, its weights are loaded into a model built anew: anything else is lost", _state_dict),
    Check("gradients", "a gradient reaches every parameter",
          "every parameter counts against a budget, also one that never learns", _gradients),
    Check("parameters", "its number of parameters is fixed, and tied weights count once",
          "scores are per parameter, and membench counts them itself", _parameters),
    Check("replicas", "several settings of a trial train in one computation",
          "learning rates that are tried together take little longer than one", _replicas),
    Check("device", "it moves to another device with .to()",
          "--device cuda moves it there, and finds what stayed behind", _device),
    Check("config", "options have a help text and refuse what cannot be built",
          "people get a sentence before anything runs, and no traceback after", _config),
    Check("budget", "its size can be chosen",
          "--budget and tune compare architectures at equal numbers of parameters", _budget),
    Check("declaration", "its declaration imports no torch",
          "membench models and --help list all plugins, and must stay fast", _declaration),
)  # fmt: skip
