"""Findings: verdicts on claims, from curves whose truth is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from membench.analysis.claims import advantage, beside, check_claim, fitted, judge, slopes
from membench.analysis.curves import Curve, Overlay, Picture, curves, draw_curves, read_overlay
from membench.errors import UsageError
from membench.plan.experiment import Claim

LAWS = ("linear", "quadratic", "power")


def curve(law: Callable[[float], float], name: str = "", noise: float = 0.005, top: float = 1.0) -> Curve:
    rng = np.random.default_rng(len(name))
    rows = [
        {"H": H, "seed": seed, "accuracy": min(top, law(H) + noise * rng.normal()), "proven": H / 100}
        for H in range(1, 32, 5)
        for seed in range(5)
    ]
    return Curve(name, "H", "accuracy", pd.DataFrame(rows))


def fits(*found: Curve) -> Sequence[Curve]:
    return [fitted(one, LAWS)[0] for one in found]


def test_a_straight_line_that_saturates_is_still_a_straight_line() -> None:
    lines = fits(curve(lambda H: 0.1 + 0.04 * H, "a"), curve(lambda H: 0.1 + 0.02 * H, "bb"))
    assert any((one.trials["accuracy"] == 1).any() for one in lines)
    verdict = judge(Claim(text="linear", law="linear"), lines)
    assert verdict.holds, verdict
    assert lines[0].fits[0].law == "linear"


def test_a_bend_denies_a_straight_line_if_it_is_large_and_is_mentioned_if_it_is_small() -> None:
    strong = judge(Claim(text="linear", law="linear"), fits(curve(lambda H: 0.001 * H**2)))
    assert strong.holds is False
    assert "quadratic describes the data better" in strong.reason
    small = judge(Claim(text="linear", law="linear"), fits(curve(lambda H: 0.02 * H + 1e-4 * H**2, noise=0.001)))
    assert small.holds
    assert "real but small" in small.reason


def test_a_curve_with_too_few_points_for_other_laws_does_not_hide_a_bend() -> None:
    bent, steep = curve(lambda H: 0.001 * H**2, "a"), curve(lambda H: 0.1 * H, "bb")
    curves = fits(bent, steep)
    assert {one.law for one in curves[1].fits} == {"linear"}
    assert judge(Claim(text="linear", law="linear"), curves).holds is False


def test_an_exponent_is_judged_by_its_interval() -> None:
    square = fits(curve(lambda H: 0.05 + 0.0008 * H**2))
    assert judge(Claim(text="square", exponent=2), square).holds
    assert judge(Claim(text="cube", exponent=3), square).holds is False


def test_series_are_compared_at_the_same_x() -> None:
    one, other = curve(lambda H: 0.02 * H, "attention, d=3"), curve(lambda H: 0.02 * H + 0.1, "MLP, d=3")
    verdict = judge(Claim(text="equal", equal=("attention", "MLP")), [one, other])
    assert verdict.holds is False
    assert re.search(r"d=3: MLP is 0\.(09\d|10\d) better", verdict.reason)
    alike = advantage(one, curve(lambda H: 0.02 * H, "another name"))
    assert alike is not None
    assert alike[1] <= 0 <= alike[2]
    assert judge(Claim(text="equal", equal=("attention", "RNN")), [one, other]).holds is None


def test_points_below_what_is_proven_are_counted() -> None:
    assert judge(Claim(text="above", above="proven"), [curve(lambda H: 0.02 * H + 0.1)]).holds
    below = judge(Claim(text="above", above="proven"), [curve(lambda H: 0.005 * H, noise=0)])
    assert below.holds is False
    assert "7 of the 7 points" in below.reason


def test_slopes_are_taken_for_each_seed_below_the_ceiling() -> None:
    frames = [curve(lambda H, d=d: 0.01 * d * H, top=1.0, noise=0).trials.assign(d=d) for d in (1, 2, 8)]
    found = slopes(pd.concat(frames), "d", "accuracy", "H", [])
    assert len(found) == 15
    assert found.groupby("d")["slope"].mean().to_dict() == pytest.approx({1: 0.01, 2: 0.02, 8: 0.08}, rel=1e-3)


def test_too_few_points_for_a_law_are_said_with_numbers() -> None:
    short = Curve(
        "",
        "H",
        "accuracy",
        pd.DataFrame({"H": [1, 1, 1, 2, 2, 2], "seed": [0, 1, 2] * 2, "accuracy": [0.1, 0.11, 0.12, 0.2, 0.21, 0.22]}),
    )
    with pytest.raises(UsageError, match=r"a quadratic needs at least 3 distinct x"):
        fitted(short, ["quadratic"])


def test_an_overlay_needs_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("H, acc\n1, 0.5\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"has no column 'accuracy'; it has: H, acc; needed: H and accuracy"):
        read_overlay(path, "H", "accuracy")
    path.write_text("H,accuracy\n1,much\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"column 'accuracy' must hold numbers, not 'much'"):
        read_overlay(path, "H", "accuracy")
    with pytest.raises(UsageError, match=r"cannot read overlay"):
        read_overlay(tmp_path / "none.csv", "H", "accuracy")


def test_a_figure_shows_curves_laws_bounds_and_overlay(tmp_path: Path) -> None:
    frame = pd.concat(
        [curve(lambda H, d=d: 0.01 * d * H).trials.assign(d=d, zero_head=0.07, chance=0.02) for d in (1, 2)]
    )
    drawn = [fitted(one, LAWS)[0] for one in curves(frame, "H", "accuracy", ["d"])]
    assert [one.name for one in drawn] == ["d=1", "d=2"]
    overlay = Overlay("published", pd.DataFrame({"H": [1, 6], "accuracy": [0.1, 0.2], "d": [1, 2]}))
    picture = Picture("A title", bound="proven", by=["d"], overlay=overlay)
    path = tmp_path / "figure.svg"
    draw_curves(drawn, picture, path)
    text = path.read_text("utf-8")
    for words in ("A title", "d=1", "published", "chance", "last token only"):
        assert f"<!-- {words} -->" in text, words


def test_no_finite_value_is_said() -> None:
    frame = curve(lambda H: 0.1).trials.assign(accuracy=np.nan)
    with pytest.raises(UsageError, match="no record has both H and accuracy"):
        curves(frame, "H", "accuracy", [])


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (Claim(text="-", law="cubic"), "unknown law 'cubic'"),
        (Claim(text="-", law="piecewise"), "not among the laws of the figure"),
        (Claim(text="-", equal=("one",)), "compares 1 series; 'equal' names two"),
    ],
)
def test_a_claim_that_cannot_be_judged_is_refused_before_anything_is_trained(claim: Claim, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_claim(claim, LAWS)


def test_a_claim_about_a_column_that_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="unknown column 'provn'; did you mean 'proven'"):
        judge(Claim(text="-", above="provn"), [curve(lambda H: 0.1)])


def test_published_points_stand_beside_what_was_measured() -> None:
    trials = pd.DataFrame({"w": [16, 16, 16, 32, 32, 32], "facts": [560, 620, 680, 2000, 2100, 2200]})
    measured = Curve("trained", "w", "facts", trials)
    points = pd.DataFrame({"series": ["trained"] * 2 + ["other"], "w": [16, 32, 16], "facts": [568, 2176, 5]})
    overlay = Overlay("theirs", points)
    best = Claim(text="", published=0.1, best=True)
    first, second = beside(best, [measured], overlay, ["series"])
    assert (first.place, first.published, first.ours, first.is_near) == ("trained, w=16", 568, 680, False)
    assert (second.ours, second.is_near) == (2200, True)
    assert str(second).startswith("trained, w=32: 2,200 (best of 3 seeds, mean 2,100, 95 % 1,852 to 2,348) against")
    (mean, _) = beside(Claim(text="", published=0.01), [measured], overlay, ["series"])
    assert mean.ours == pytest.approx(620)
    assert mean.is_near  # 568 lies in the interval of the mean
    assert judge(best, [measured], overlay, ["series"]).holds is False
