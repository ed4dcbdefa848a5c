"""Every column of the tables of models and architectures, defined once. (Those of tracks are in `track_tables`.)

The terminal, Markdown, the page, CSV, JSON, plots and `--explain` read the definitions below and spell none of them
out. A new column is one entry here and its value for a trial in `frame._row`. For a model, `rows.summarise` averages
over the trials what is `averaged` here, and makes the rest. For an architecture, `scores.score` makes the
value of a column in `score_columns`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeGuard

from membench.measure.metrics import METRICS, RECALLS, recall_name
from membench.measure.size import ALL, COUNTS
from membench_leaderboard.budgets import BUDGETS
from membench_leaderboard.words import METRIC, seeds, whose

Row = Mapping[str, Any]
Place = Literal["terminal", "markdown", "page"]
# Tables, by the metric that their rows are sorted by (rows.sorted_by).
EVERY, ASSOCIATIONS, DISTRIBUTIONS, NONE = ("accuracy", "kl"), ("accuracy",), ("kl",), ()
INTERVALS = {"accuracy": ("low", "high"), "kl": ("kl_low", "kl_high")}  # keys of the ends of the 95 % interval
DIGITS = {"accuracy": ".3f", "kl": ".4f"}  # of scores and intervals
UNKNOWN = "-"


@dataclass(frozen=True)
class Column:
    """What a column is, and where it is shown.

    Columns come in the order of their definitions. A terminal shows as many of them as fit, so that what comes first
    is also what is kept the longest. Terminals and pages leave out a column of which no row knows anything.
    """

    key: str  # of its value in a row or a score, and its name in CSV and JSON
    header: str = ""
    meaning: str = ""  # a sentence
    form: str = ""  # format of its numbers; none for text
    better: int = 0  # 1: more is better, -1: less is better, 0: neither
    terminal: tuple[str, ...] = EVERY
    markdown: tuple[str, ...] = EVERY
    page: tuple[str, ...] = EVERY
    data: bool = True  # whether it is a field of JSON and CSV
    last: tuple[str, ...] = NONE  # tables in which it comes after the others
    short: str = ""  # the header where there is little room; may break at spaces, soft hyphens and zero-width spaces
    compact: str = ""  # the format where there is little room
    ends: tuple[str, str] | None = None  # keys of the ends of its 95 % interval
    ends_form: str = ""
    beneath: str = ""  # in a terminal, the column that stands in the same cells, in the second line
    per_parameter: bool = False  # so that it depends on how parameters are counted
    budget: int | None = None  # it is about the best model with at most so many parameters
    mean: bool | None = None  # whether a model has the mean over its trials; None: if there is a format for it
    varying: bool = False  # shown only where rows differ; otherwise the note says it for all of them
    provenance: bool = False  # about where numbers are from; a narrow terminal says it in words
    words: str = ""  # as an axis
    line: str = ""  # in plots, the name of a horizontal line at its mean
    show: Callable[[Row], str] | None = None  # how a value that is not a number becomes text

    @property
    def name(self) -> str:
        """Tells it from the other columns of a table."""
        return self.key if self.budget is None else f"budget {self.budget}"

    @property
    def lines(self) -> str:
        """The header for a terminal, broken wherever it may be."""
        breaks = {"\u00ad": "-\n", "\u200b": "\n", " ": "\n", "\u00a0": " "}
        return "".join(breaks.get(letter, letter) for letter in self.short or self.header)

    @property
    def flowing(self) -> str:
        """The header for the page, which breaks it where the width demands that."""
        return (self.short or self.header).replace("\u00a0", " ")

    @property
    def averaged(self) -> bool:
        """Whether its value for a model is the mean over the trials."""
        return bool(self.form) if self.mean is None else self.mean

    @property
    def counted(self) -> bool:
        """Whether its numbers depend on how parameters are counted."""
        return self.per_parameter or self.budget is not None

    def value(self, row: Row, count: str = "all") -> Any:
        source = self._source(row, count)
        value = None if source is None else source.get(self.key)
        if not self.per_parameter or count == ALL.word or not known(value):
            return value
        parameters, counted = row.get(ALL.field), row.get(COUNTS[count].field)
        return value * parameters / counted if known(parameters) and counted else None

    def text(self, row: Row, count: str = "all", *, tight: bool = False) -> str:
        if self.show:
            return self.show(row)
        value = self.value(row, count)
        if self.form:
            return number(value, (tight and self.compact) or self.form)
        return "" if value is None else str(value)

    def interval(self, row: Row, count: str = "all") -> str:
        """Its 95 % interval; empty where there is none."""
        source = self._source(row, count)
        low, high = (source.get(end) for end in self.ends) if self.ends and source else (None, None)
        form = self.ends_form or self.form
        return f"{low:{form}}-{high:{form}}" if known(low) and known(high) else ""

    def interval_or_seeds(self, row: Row) -> str:
        """Of a model with one seed, and so without an interval, how many seeds there are."""
        return self.interval(row) or (seeds(row["seeds"]) if "seeds" in row else "")

    def decides(self, by: str) -> bool:
        """Whether it is what the rows of a table are sorted by."""
        return self.budget is None and self.key in (by, "area")

    def _source(self, row: Row, count: str) -> Row | None:
        best: Row | None = row if self.budget is None else row["budgets"][str(self.budget)][count]
        return best


def number(value: Any, form: str = ".4f") -> str:
    return format(value, form) if known(value) else UNKNOWN


def known(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _place(row: Row) -> str:
    return UNKNOWN if row["rank"] is None else f"{row['rank']}{'=' if row['tied'] else ''}"


def _starred(row: Row) -> str:
    return f"{row['architecture']} *" if row["pareto"] else str(row["architecture"])


def _field(key: str, meaning: str, mean: bool = False) -> Column:
    """Something that JSON and CSV alone have a column for."""
    return Column(key, meaning=meaning, terminal=NONE, markdown=NONE, page=NONE, mean=mean)


def _metric(key: str, header: str, meaning: str, form: str, **more: Any) -> Column:
    return Column(key, header, meaning, form, METRICS[key].sign, **more)


RANK = Column(
    "rank", "#", "Place in the table. Rows whose intervals overlap share a rank, and '=' says so.", show=_place
)
TIED = _field("tied", "Whether the rank is shared.")
PROVENANCE = (
    Column("published", "records", "Whether the records ship with membench or are yours.", markdown=NONE, page=NONE,
           provenance=True, show=whose),
    Column("origin", "weights",
           "Whether the weights were trained, by a plugin's kernel or by membench, or constructed.",
           page=NONE, provenance=True),
    Column("verification", "numbers", "Verified: the weights were checked against the records of all seeds. "
           "Self-reported: they were not. Marks of your own folders say who signed them.", page=NONE, provenance=True),
    Column("membench", "membench", "The version of membench that made the records.", page=NONE, provenance=True),
)  # fmt: skip
RATIO_TO_BOUND = Column(
    "ratio_to_bound", "x proven", "Facts held, as a multiple of the largest number proven.", ".1f", 1,
    short="x\u00a0proven", markdown=NONE,
)  # fmt: skip
RATIO_TO_ORACLE = Column(
    "ratio_to_oracle", "x convex oracle",
    "Facts held, as a multiple of what the convex readout of the same model holds.", ".2f", 1,
    short="x\u00a0convex oracle", markdown=NONE,
)  # fmt: skip
EXCESS_KL = _metric(
    "excess_kl", "KL over floor", "Divergence beyond the best known for logits of this rank.", ".4f",
    short="KL\u00a0over floor", markdown=DISTRIBUTIONS,
)  # fmt: skip

# What a model costs, beside its parameters; each is also an axis of the page's curves.
COSTS = (
    Column("storage_bits", "stored bits", "Bits of all tensors of the state dict.", ",.0f", -1,
           short="stored bits", markdown=NONE, words="stored bits"),
    Column("active", "active", "Parameters that one question reads.", ",.0f", -1, markdown=NONE,
           words="active parameters"),
    Column("state", "state", "Numbers that are carried from one position to the next.", ",.0f", -1, markdown=NONE,
           words="numbers of state"),
    Column("flops", "FLOPs", "FLOPs of one question, in matrix products.", ",.0f", -1, markdown=NONE,
           words="FLOPs per question"),
    Column("code_bytes", "code bytes", "Bytes of the plugin's source, compressed.", ",.0f", -1,
           short="code bytes", markdown=NONE, words="bytes of code"),
    Column("bits_per_stored_bit", "bits/stored bit",
           "Bits memorised for each bit of the weights and of the compressed code.", ".4f", 1,
           short="bits/\u200bstored bit", markdown=NONE, words="bits per stored bit"),
    Column("cpu_seconds", "CPU s", "CPU seconds to train one seed, with the probes that choose settings.", ",.1f", -1,
           short="CPU\u00a0s", markdown=NONE, words="CPU seconds"),
)  # fmt: skip

MODELS = (
    RANK,
    TIED,
    Column("architecture", "model", "The architecture; * marks models on the Pareto front.", show=_starred),
    _field("pareto", "Whether it is on the Pareto front."),
    Column("config", "config", "The options of the model.", terminal=NONE, page=NONE),
    _field("task", "Name of the task."),
    _field("task_version", "Version of the task."),
    _field("task_config", "Options of the task."),
    _field("kind", "What its facts are: an association has one right answer for each context, a distribution several."),
    _field("protocol", "Name of the protocol."),
    _field("protocol_version", "Version of the protocol."),
    _field("protocol_config", "Options of the protocol."),
    Column(ALL.field, ALL.header, "Numbers that training can change, counted by membench.", ",.0f", -1,
           short="params", beneath="without_embeddings"),
    *(Column(count.field, count.header, f"{count.words.capitalize()}.", ",.0f", -1,
             short=count.header.replace("without embeddings", "w/o\u00a0emb."), terminal=NONE)
      for count in COUNTS.values() if count is not ALL),
    _metric("kl", "KL", "Divergence of the model from the facts in nats, weighted by their prior.", ".4f",
            markdown=DISTRIBUTIONS, last=ASSOCIATIONS, ends=INTERVALS["kl"]),
    _field("kl_low", "Lower end of the 95 % interval of KL, in tables sorted by it."),
    _field("kl_high", "Upper end of that interval."),
    replace(EXCESS_KL, last=ASSOCIATIONS),
    _metric("accuracy", "accuracy",
            "Over all facts, weighted by their prior, with frozen weights: the mean over seeds, "
            "with the 95 % t interval of that mean.", ".4f",
            short="accu\u00adracy", ends=INTERVALS["accuracy"], ends_form=".3f"),
    _field("low", "Lower end of the 95 % interval of the accuracy."),
    _field("high", "Upper end of that interval."),
    _metric("associations", "facts held",
            "Facts that a model would have to know to be as accurate, if it guessed all others.", ",.0f",
            terminal=ASSOCIATIONS, markdown=ASSOCIATIONS),
    _metric("bits_per_parameter", "bits/param",
            "What the answers say beyond a uniform guess, in bits, divided by the parameters.", ".2f",
            short="bits/\u200bparam", per_parameter=True),
    Column("lower_bound", "lower bound", "The largest accuracy that theory guarantees.", ".4f", 1,
           compact=".3f", terminal=ASSOCIATIONS),
    _field("lower_bound_name", "The bound that guarantees it."),
    Column("zero_head", "zero-head", "Accuracy of the best model that sees only the last token.", ".4f", 1,
           compact=".3f", short="zero-\u200bhead", terminal=ASSOCIATIONS, line="last token only (zero-head)"),
    Column("chance", "chance", "Accuracy of a uniform guess.", ".4f", 1, compact=".3f", terminal=ASSOCIATIONS,
           line="chance"),
    Column("bayes", "best possible", "Accuracy of the facts' own likeliest answers.", ".3f", 1,
           terminal=DISTRIBUTIONS, markdown=NONE, page=DISTRIBUTIONS, line="best possible accuracy"),
    Column("load", "load", "The bits that the answers to all facts take, divided by the parameters: "
           "no model holds more.", ".2f", 1, markdown=NONE, per_parameter=True),
    RATIO_TO_BOUND,
    RATIO_TO_ORACLE,
    Column("identifiable", "identifiable",
           "Parameters less the directions that change no output, where they are known.", ",.0f", -1,
           short="identifi\u00adable", markdown=NONE),
    *COSTS,
    _field("buffers", "Numbers in the buffers of the model.", mean=True),
    _field("learned_bits", "Bits that the parameters are stored in: no model knows more.", mean=True),
    _field("bits", "What the answers say beyond a uniform guess, in bits.", mean=True),
    _field("bits_of_accuracy", "The bits that the accuracy is worth on random labels.", mean=True),
    _field("bits_beyond_last_token", "What the answers say beyond a guess by the last token, in bits.", mean=True),
    *(_field(recall_name(k), f"How often the right answer is among the first {k}.", mean=True) for k in RECALLS),
    _field("stream_accuracy", "Accuracy over the last 100 batches, where the protocol has batches.", mean=True),
    Column("seeds", "seeds", "How many trials the mean is over.", ",.0f", 1, mean=False, terminal=NONE, markdown=NONE,
           varying=True),
    Column("shapes", "shapes tried",
           "Shapes of the architecture that `tune` tried to find this one; empty: the shape was given.", ",.0f",
           terminal=NONE, markdown=NONE, page=NONE),
    _field("converged", "Whether training stopped gaining before it had used up its steps."),
    *PROVENANCE,
    Column("id", "id", "What --explain finds the model by.", terminal=NONE),
)  # fmt: skip


@functools.cache
def score_columns(by: str) -> tuple[Column, ...]:
    """The columns of a table of architectures, whose scores are about the metric that its models are sorted by."""
    word, form, sign = METRIC[by], DIGITS[by], METRICS[by].sign
    budgets = (
        Column(by, f"{word} at {budget_name(budget)}",
               f"The best accuracy (or divergence) with at most {budget:,} parameters.", form, sign,
               data=False, short=f"{word} at\u00a0{budget_name(budget)}", ends=INTERVALS[by], budget=budget)
        for budget in BUDGETS
    )  # fmt: skip
    return (
        RANK,
        TIED,
        Column("architecture", "architecture", "The architecture; * marks models on the Pareto front."),
        *budgets,
        _field("budgets", "For each budget and way to count parameters, the best model that fits it."),
        Column("area", "area", "Mean of the best accuracy (or divergence) within a budget, over the logarithm of the "
               "budget.", form, sign, ends=("area_low", "area_high")),
        _field("area_low", "Lower end of the 95 % interval of the area."),
        _field("area_high", "Upper end of that interval."),
        Column("peak_bits_per_parameter", "peak bits/param", "The most bits per parameter at any load.", ".2f", 1,
               short="peak bits/\u200bparam"),
        Column("load_at_99", "load at 99 %", "The largest load at which 99 % accuracy is reached.", ".2f", 1,
               short="load\u00a0at 99\u00a0%", markdown=ASSOCIATIONS),
        replace(RATIO_TO_BOUND, markdown=ASSOCIATIONS),
        replace(RATIO_TO_ORACLE, markdown=ASSOCIATIONS),
        EXCESS_KL,
        Column("models", "models", "How many models the scores are over.", ",.0f", markdown=NONE, page=NONE),
        *PROVENANCE,
    )  # fmt: skip


def budget_name(budget: int) -> str:
    return f"{budget // 1000}k"


def shown(columns: Sequence[Column], place: Place, by: str, rows: Sequence[Row]) -> list[Column]:
    """The columns of a table in a place, in their order.

    A document has the same columns whatever its records say; elsewhere, those that would say nothing are left out.
    """
    found = [one for one in columns if by in getattr(one, place)]
    if place != "markdown":
        found = [one for one in found if one.decides(by) or _says_something(one, rows)]
    return sorted(found, key=lambda one: by in one.last)


def _says_something(column: Column, rows: Sequence[Row]) -> bool:
    values = [column.value(row, count) for row in rows for count in (COUNTS if column.counted else (ALL.word,))]
    if column.varying:
        return len(set(values)) > 1
    return any(known(value) if column.form else value is not None for value in values)


def find(columns: Sequence[Column], key: str) -> Column:
    return next(one for one in columns if one.key == key)
