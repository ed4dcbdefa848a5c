"""Record: what a trial leaves, as one JSON object."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from membench.measure.metrics import METRICS

SCHEMA = 2
MAX_DEPTH = 40  # of nesting; a record has 6
MAX_INTEGER = 2**63 - 1
ROUNDING = 1e-9  # by which a sum of thousands of shares may pass 1
KINDS = ("association", "distribution")  # of facts: one answer for each context, or a distribution over answers
_SHAPES: dict[str, type | tuple[type, ...]] = {
    "id": str, "seed": int, "status": str, "architecture": dict, "task": dict, "protocol": dict,
    "metrics": dict, "size": dict, "bounds": list, "trace": dict, "environment": dict, "git": dict, "run": dict,
    "error": (str, type(None)), "weights": (dict, type(None)),
}  # fmt: skip
_REQUIRED = {
    "architecture": ("name", "config"),
    "task": ("name", "version", "config"),
    "protocol": ("name", "version", "config"),
}


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a trial leaves. The first field stays first, so that a schema is known from a file's first bytes."""

    schema: int = SCHEMA
    id: str
    seed: int
    status: str  # complete or failed
    architecture: dict[str, Any]  # name, version, distribution, distribution_version, commit, code_sha256, config
    task: dict[str, Any]  # the same, and kind, contexts, vocab, answers, length, data_sha256
    protocol: dict[str, Any]  # name, version, config
    metrics: dict[str, float | None] = field(default_factory=dict)
    size: dict[str, Any] = field(default_factory=dict)
    bounds: list[dict[str, Any]] = field(default_factory=list)
    trace: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    git: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    weights: dict[str, Any] | None = None  # file (beside the record), sha256, bytes; None when they were not kept
    more: dict[str, Any] = field(default_factory=dict)  # fields that another version added: kept when it is rewritten

    @property
    def complete(self) -> bool:
        return self.status == "complete"

    @property
    def asks_for_distributions(self) -> bool:
        """Whether divergence decides, and not accuracy."""
        return self.task.get("kind") == "distribution"

    def proven(self, quantity: str) -> tuple[float, str]:
        """The most of a quantity that theory guarantees, and the bound that does; NaN when none does."""
        found = [
            (bound["value"], str(bound.get("name")))
            for bound in self.bounds
            if isinstance(bound, dict)
            and bound.get("quantity") == quantity
            and bound.get("direction") == "lower"
            and bound.get("status", "applies") == "applies"
            and isinstance(bound.get("value"), (int, float))
        ]
        return max(found, default=(math.nan, ""))

    def reference(self, name: str) -> float:
        """A reference value, such as zero-head, by its name; NaN when there is none."""
        values = [bound.get("value") for bound in self.bounds if isinstance(bound, dict) and bound.get("name") == name]
        return float(values[0]) if values and isinstance(values[0], (int, float)) else math.nan

    @property
    def bits_per_stored_bit(self) -> float:
        """Memorised bits for each bit of the weights and of the compressed code; NaN where one is not known."""
        bits, weights, code = self.metrics.get("bits"), self.size.get("storage_bits"), self.size.get("code_bytes")
        if bits is None or weights is None or code is None or weights + code == 0:
            return math.nan
        return float(bits / (weights + 8 * code))

    @property
    def cpu_seconds(self) -> float:
        """What training this seed takes, with the probes that chose its settings; NaN where it was not measured."""
        own, probes = self.run.get("cpu_seconds"), self.run.get("probe_cpu_seconds", 0.0)
        known = isinstance(own, (int, float)) and isinstance(probes, (int, float))
        return float(own + probes) if known else math.nan

    def to_json(self) -> str:
        return json.dumps(self.to_plain(), indent=1, allow_nan=False) + "\n"

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        plain: dict[str, Any] = _without_nan(self.to_data())
        return plain

    def to_data(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in _FIELDS}, **self.more}

    @classmethod
    def from_json(cls, text: str) -> Record:
        """ValueError, in words, for anything that is not a record of this schema or an older one."""
        return cls.from_data(read_json(text))

    @classmethod
    def from_data(cls, data: Any) -> Record:
        """The same for JSON that was read already."""
        if isinstance(data, dict) and type(data.get("schema")) is int and data["schema"] <= SCHEMA:
            check_plain(data)  # of a newer one, only its schema is known
        return cls.from_plain(data)

    @classmethod
    def from_plain(cls, data: Any) -> Record:
        """The same for JSON that `check_plain` has seen."""
        if not isinstance(data, dict) or type(data.get("schema")) is not int:
            raise ValueError("not a membench record")
        if data["schema"] > SCHEMA:
            raise NewerSchema(data["schema"])
        known = _checked({name: value for name, value in data.items() if name in _NAMES})
        more = {name: value for name, value in data.items() if name not in _NAMES}
        return cls(**upgrade(known), more=more)


_FIELDS = tuple(one.name for one in fields(Record) if one.name != "more")
_NAMES = frozenset(_FIELDS)


class NewerSchema(ValueError):
    """A record that a newer membench wrote."""

    def __init__(self, schema: int) -> None:
        super().__init__(f"has record schema {schema}, but this membench reads up to {SCHEMA}; upgrade membench")


def read_json(text: str) -> Any:
    """Plain JSON, without NaN. ValueError for anything else."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it contains {name}, which is not valid JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)  # made once: records are read by the hundred thousand


def check_plain(value: Any, depth: int = MAX_DEPTH) -> None:
    """ValueError for JSON that a reader could stumble over later: nested too deeply, huge numbers, broken texts."""
    if depth == 0:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    values = value.values() if type(value) is dict else value if type(value) is list else (value,)
    if type(value) is dict:
        _check_text("".join(value))
    for one in values:  # in place, without a call for each: a record has hundreds of them
        kind = type(one)
        if kind is str:
            if not one.isascii():
                _check_text(one)
        elif kind is float:
            if not math.isfinite(one):
                raise ValueError("it has a number that is not finite")
        elif kind is int:
            if not -MAX_INTEGER <= one <= MAX_INTEGER:
                raise ValueError(f"it has a whole number beyond {MAX_INTEGER}")
        elif kind is dict or kind is list:
            check_plain(one, depth - 1)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"it has a text that is not Unicode: {ascii(text)[:40]}") from None


def _checked(data: dict[str, Any]) -> dict[str, Any]:
    for name, kind in _SHAPES.items():
        if name in data and not isinstance(data[name], kind):
            raise ValueError(f"its {name} is a {type(data[name]).__name__}")
    missing = [name for name in ("id", "seed", "status", *_REQUIRED) if name not in data]
    missing += [f"{part}.{key}" for part, keys in _REQUIRED.items() for key in keys if key not in data.get(part, ())]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    _check("seed", data["seed"], 0, MAX_INTEGER, int)
    for part in _REQUIRED:
        _check_part(part, data[part])
    for name, value in data.get("metrics", {}).items():
        _check(f"metrics.{name}", value, *_range(name), optional=True)
    for name, value in data.get("size", {}).items():
        _check(f"size.{name}", value, 0, MAX_INTEGER, int, optional=True)
    for bound in data.get("bounds", ()):
        if not isinstance(bound, dict):
            raise ValueError(f"one of its bounds is a {type(bound).__name__}")
        if type(value := bound.get("value")) not in (float, int, type(None)):
            raise ValueError(f"its bounds.value is {_shown(value)}, and not a number")
    if data["task"].get("kind") not in (*KINDS, None):
        raise ValueError(f"its task.kind is {_shown(data['task']['kind'])}, and not one of {', '.join(KINDS)}")
    return data


def _range(metric: str) -> tuple[float, float]:
    """What a metric can be, also one of rounded weights (`accuracy@int8`); anything, where we do not know it."""
    known = METRICS.get(metric) or METRICS.get(metric.rpartition("@")[0])
    floor, ceiling = (known.floor, known.ceiling) if known else (None, None)
    return (-math.inf if floor is None else floor, math.inf if ceiling is None else ceiling + ROUNDING)


def _check_part(part: str, values: dict[str, Any]) -> None:
    """Of architecture, task and protocol: names are texts, versions and counts whole numbers, a config options."""
    for key in ("name", "label", "distribution"):
        if not isinstance(values.get(key, ""), (str, type(None)) if key != "name" else str):
            raise ValueError(f"its {part}.{key} is {_shown(values[key])}, and not a text")
    if not isinstance(values["config"], dict):
        raise ValueError(f"its {part}.config is a {type(values['config']).__name__}")
    if part != "architecture":
        _check(f"{part}.version", values["version"], 0, MAX_INTEGER, int)
    for key in ("contexts", "vocab", "answers", "length"):
        _check(f"{part}.{key}", values.get(key), 1, MAX_INTEGER, int, optional=True)


def _check(name: str, value: Any, low: float, high: float, *kinds: type, optional: bool = False) -> None:
    """ValueError unless it is a number of this kind and range, or nothing where that is fine."""
    if value is None and optional:
        return
    if type(value) not in (kinds or (int, float)):
        wanted = "a whole number" if int in kinds else "a number"
        raise ValueError(f"its {name} is {_shown(value)}, and not {wanted}")
    if not low <= value <= high:
        raise ValueError(f"its {name} is {_shown(value)}, and not between {low:g} and {high:g}")


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 40 else f"{text[:40]}.."


def upgrade(data: dict[str, Any]) -> dict[str, Any]:
    """A record of this schema or an older one as one of this schema, one version after the other."""
    while (schema := data["schema"]) < SCHEMA:
        if schema not in UPGRADES:
            raise ValueError(f"it has record schema {schema}, which no membench wrote")
        data = {**UPGRADES[schema](data), "schema": schema + 1}
    return data


def _to_2(data: dict[str, Any]) -> dict[str, Any]:
    """Schema 1 did not say what kind of facts they were, nor how many: the built-in bounds and options tell.

    The version of an architecture was that of its distribution; who brought a bound was not said.
    """
    bounds = [_upgraded(bound) if isinstance(bound, dict) else bound for bound in data.get("bounds", [])]
    architecture = {**data["architecture"], "version": 1, "code_sha256": None}
    architecture["distribution_version"] = data["architecture"].get("version")
    task = {**data["task"], "distribution_version": None, "code_sha256": None, **_facts_of(data["task"], bounds)}
    return {**data, "architecture": architecture, "task": task, "bounds": bounds}


# By schema: what makes a record of it one of the next.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _to_2}


def _upgraded(bound: dict[str, Any]) -> dict[str, Any]:
    direction = "reference" if bound.get("direction") == "baseline" else bound.get("direction")
    return {**bound, "direction": direction, "provider": None}


def _facts_of(task: Mapping[str, Any], bounds: Iterable[Any]) -> dict[str, Any]:
    config = task["config"] if isinstance(task["config"], dict) else {}
    values = {bound.get("name"): bound.get("value") for bound in bounds if isinstance(bound, dict)}
    numbers = {name: float(value) for name, value in values.items() if isinstance(value, (int, float))}
    chance, best = numbers.get("chance", 0.0), numbers.get("bayes", 1.0)
    vocab = round(1 / chance) if chance > 0 else config.get("N")
    return {
        "kind": "distribution" if best < 1 - 1e-9 else "association",
        "contexts": round(numbers["support"]) if "support" in numbers else config.get("T0"),
        "vocab": vocab,
        "answers": vocab,
        "length": 2 if task["name"] == "bigram" else config.get("S"),
    }


def _without_nan(value: Any) -> Any:
    """NaN and infinities as null: JSON has no word for them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _without_nan(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(one) for one in value]
    return value
