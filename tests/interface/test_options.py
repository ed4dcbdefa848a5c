from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from membench.errors import UsageError
from membench.interface.options import assignments, expand, label, option, options_of, validate


@dataclass(frozen=True, kw_only=True)
class Config:
    d: int = option(10, help="width", minimum=1)
    d_h: int = option(None, help="head width", minimum=1)
    rate: float = option(0.5, help="rate", minimum=0, maximum=1)
    deep: bool = option(False, help="deep")
    mask: str = option("explicit", help="mask", choices=("explicit", "weights"))

    def __post_init__(self) -> None:
        if self.d_h is None:
            object.__setattr__(self, "d_h", self.d)
        if self.d_h > self.d:
            raise ValueError(f"d_h={self.d_h} must be at most d={self.d}")


def grid(*texts: str) -> list[Config]:
    return expand(Config, assignments(texts), "toy", "see: membench models toy")


def test_a_range_includes_its_end_and_a_list_its_parts() -> None:
    assert [c.d for c in grid("d=1:31:5")] == [1, 6, 11, 16, 21, 26, 31]
    assert [c.d for c in grid("d=7,10,13")] == [7, 10, 13]
    assert [c.d for c in grid("d=1:3,10")] == [1, 2, 3, 10]
    assert [c.rate for c in grid("rate=0:1:0.25")] == [0, 0.25, 0.5, 0.75, 1]


def test_several_options_make_a_grid() -> None:
    assert [(c.d, c.mask) for c in grid("d=4,5", "mask=explicit,weights")] == [
        (4, "explicit"), (4, "weights"), (5, "explicit"), (5, "weights"),
    ]  # fmt: skip


def test_auto_and_the_value_that_it_stands_for_are_one_point() -> None:
    assert grid("d_h=auto,10") == grid()
    assert grid("d_h=auto") == [Config(d_h=10)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("d=ten", "d=ten: a whole number of at least 1"),
        ("d=-1", "d=-1: a whole number of at least 1"),
        ("d=2.5", "d=2.5: a whole number"),
        ("d=1:x", "d=1:x: a whole number"),
        ("d=1:9:0", "d=1:9:0: a whole number"),
        ("d=9:1", "9:1 is empty"),
        ("rate=2", "rate=2: a number from 0 to 1"),
        ("rate=nan", "rate=nan: a number from 0 to 1"),
        ("deep=perhaps", "deep=perhaps: true or false"),
        ("mask=none", "mask=none: one of explicit, weights"),
        ("d=5 ,", "d=: a whole number"),
        ("D=5", "unknown option of toy 'D'; did you mean 'd'? see: membench models toy"),
        ("d_h=12", "d_h=12 must be at most d=10"),
        ("d", "'d' is not of the form NAME=VALUE"),
        ("d=", "is not of the form NAME=VALUE"),
        ("d=1:100000000", "d=1:100000000: a whole number"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_value_and_what_would_be_valid(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        grid(text)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        grid("d=ten", "rate=7", "nothing=1")
    assert len(str(caught.value).splitlines()) == 3


def test_the_same_option_twice_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="given twice"):
        grid("d=1", "d=2")


@given(start=st.integers(1, 50), count=st.integers(1, 20), step=st.integers(1, 7))
def test_any_range_is_what_it_says(start: int, count: int, step: int) -> None:
    end = start + (count - 1) * step
    assert [c.d for c in grid(f"d={start}:{end}:{step}")] == list(range(start, end + 1, step))


@given(st.text(max_size=20))
def test_no_text_is_worse_than_a_usage_error(text: str) -> None:
    try:
        configs = expand(Config, {"d": text, "rate": text}, "toy", "")
    except UsageError:
        return
    assert all(config.d >= 1 and 0 <= config.rate <= 1 for config in configs)


@given(
    st.builds(
        Config,
        d=st.integers(1, 9),
        rate=st.floats(0, 1).map(lambda x: float(f"{x:g}")),
        deep=st.booleans(),
        mask=st.sampled_from(["explicit", "weights"]),
    )
)
def test_a_label_can_be_typed_back(config: Config) -> None:
    assert grid(*label(config).split()) == [config]


def test_a_label_leaves_out_what_goes_without_saying() -> None:
    assert label(Config()) == "d=10 d_h=10 rate=0.5"
    assert label(Config(deep=True, mask="weights")) == "d=10 d_h=10 rate=0.5 deep=true mask=weights"


def test_configs_made_in_python_keep_to_the_same_ranges() -> None:
    validate(Config(), "toy")
    with pytest.raises(UsageError, match="d=0: a whole number of at least 1"):
        validate(Config(d=0, d_h=0), "toy")


def test_only_simple_types_are_options() -> None:
    @dataclass(frozen=True)
    class Odd:
        sizes: list[int]

    with pytest.raises(TypeError, match="sizes"):
        options_of(Odd)
