"""Laws are found again in simulated data whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from membench.analysis.laws import LAWS, Fit, best, compare, fit, fit_all
from membench.errors import UsageError

X = np.repeat(np.arange(1.0, 21.0), 5)
TRUTHS = {
    "linear": {"offset": 0.02, "slope": 0.03},
    "quadratic": {"offset": 0.1, "slope": 0.06, "curvature": -0.001},
    "power": {"offset": 0.05, "scale": 0.1, "exponent": 0.6},
    "piecewise": {"offset": 0.1, "slope": 0.06, "slope after": 0.01, "break": 9.3},
}


def simulated(law: str, seed: int = 0, noise: float = 0.01, x: np.ndarray = X) -> np.ndarray:
    return LAWS[law].mean(x, **TRUTHS[law]) + np.random.default_rng(seed).normal(0, noise, len(x))


@pytest.mark.parametrize("law", LAWS)
def test_known_parameters_are_recovered(law: str) -> None:
    found = fit(law, X, simulated(law, noise=0.002))
    for name, value in TRUTHS[law].items():
        assert found.parameters[name] == pytest.approx(value, rel=0.1, abs=0.01), name
        low, high = found.intervals[name]
        assert low < found.parameters[name] < high
    assert found.sigma == pytest.approx(0.002, rel=0.2)
    assert found.predict(X) == pytest.approx(LAWS[law].mean(X, **TRUTHS[law]), abs=0.002)


@pytest.mark.parametrize("exponent", [-1.5, -0.5, 0.5, 2.0, 3.0])
def test_exponents_of_either_sign_are_recovered(exponent: float) -> None:
    y = 0.3 + 0.5 * (X / 20) ** exponent
    y += np.random.default_rng(1).normal(0, 0.01 * np.ptp(y), len(X))
    found = fit("power", X, y)
    low, high = found.intervals["exponent"]
    assert low < exponent < high
    assert high - low < 0.3


@pytest.mark.parametrize("law", LAWS)
def test_the_right_law_has_the_least_aic(law: str) -> None:
    winners = [best(fit_all(X, simulated(law, seed), intervals=False)[0]).law for seed in range(20)]
    # every other law contains the line, and noise alone sometimes pays for one parameter more
    assert winners.count(law) >= (12 if law == "linear" else 19)


def test_the_true_slope_lies_in_most_intervals() -> None:
    x = np.repeat(np.arange(1.0, 9.0), 5)
    hits = 0
    for seed in range(200):
        y = np.minimum(simulated("linear", seed, noise=0.05, x=x) + 0.75, 1.0)
        low, high = fit("linear", x, y, ceiling=1.0).intervals["slope"]
        hits += low <= TRUTHS["linear"]["slope"] <= high
    assert 0.88 * 200 <= hits < 200


def test_censoring_has_less_bias_than_dropping_or_ignoring_the_ceiling() -> None:
    slopes: dict[str, list[float]] = {"censored": [], "dropped": [], "ignored": []}
    for seed in range(40):
        y = np.minimum(simulated("linear", seed, noise=0.1) + 0.55, 1.0)
        below = y < 1
        slopes["censored"].append(fit("linear", X, y, ceiling=1.0, intervals=False).parameters["slope"])
        slopes["dropped"].append(fit("linear", X[below], y[below], intervals=False).parameters["slope"])
        slopes["ignored"].append(fit("linear", X, y, intervals=False).parameters["slope"])
    bias = {way: abs(np.mean(found) - 0.03) / 0.03 for way, found in slopes.items()}
    assert bias["censored"] < 0.03
    assert bias["dropped"] > 0.1
    assert bias["ignored"] > 0.1


def test_the_likelihood_is_that_of_a_general_optimiser() -> None:
    y = np.minimum(simulated("quadratic", noise=0.03), 0.8)

    def minus_likelihood(p: np.ndarray) -> float:
        mean, sigma = p[0] + p[1] * X + p[2] * X**2, np.exp(p[3])
        return -float(np.where(y >= 0.8, norm.logsf(0.8, mean, sigma), norm.logpdf(y, mean, sigma)).sum())

    found = fit("quadratic", X, y, ceiling=0.8)
    assert found.censored == int((y >= 0.8).sum()) > 10
    here = [*found.parameters.values(), np.log(found.sigma)]
    there = minimize(minus_likelihood, here, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-9})
    assert minus_likelihood(np.array(here)) == pytest.approx(there.fun, abs=1e-5)
    parameters = len(here)
    aicc = 2 * parameters + 2 * there.fun + 2 * parameters * (parameters + 1) / (len(X) - parameters - 1)
    assert found.aicc == pytest.approx(aicc, abs=1e-4)


def test_the_prediction_stops_at_the_ceiling() -> None:
    y = np.minimum(simulated("linear") + 0.7, 1.0)
    found = fit("linear", X, y, ceiling=1.0)
    assert found.predict([1000.0]) == 1.0
    assert found.predict([1.0]) == pytest.approx(0.75, abs=0.01)


def test_a_chosen_ceiling_censors_what_lies_above_it() -> None:
    y = simulated("linear") + 0.6
    above = int((y >= 0.995).sum())
    found = fit("linear", X, y, ceiling=0.995)
    assert found.censored == above > 0
    assert found.parameters["slope"] == pytest.approx(0.03, rel=0.05)


def test_the_same_data_give_the_same_numbers() -> None:
    y = simulated("piecewise")
    assert fit("piecewise", X, y) == fit("piecewise", X, y)


def test_units_do_not_matter() -> None:
    y = simulated("power", noise=0.005)
    here, there = fit("power", X, y), fit("power", 1e4 * X, 1e-3 * y)
    assert there.parameters["exponent"] == pytest.approx(here.parameters["exponent"], abs=1e-4)
    assert there.parameters["offset"] == pytest.approx(1e-3 * here.parameters["offset"], abs=1e-6)
    assert there.intervals["exponent"] == pytest.approx(here.intervals["exponent"], abs=1e-3)


def test_a_fit_in_words() -> None:
    found = fit("linear", X, simulated("linear", noise=0.001))
    low, high = found.intervals["slope"]
    assert found.words("head") == f"slope 0.03 per head (95 % {low:.3g} to {high:.3g})"


def test_a_comparison_in_words() -> None:
    def made(law: str, aicc: float) -> Fit:
        return Fit(law, dict.fromkeys(LAWS[law].parameters, 0.0), {}, 1.0, aicc, 10, 0)

    fits = [made("quadratic", 18.2), made("linear", 10.0), made("power", 11.5)]
    assert compare(fits, {"piecewise": "a broken line needs at least 4 distinct x; there are 3"}) == (
        "a straight line describes the data best; a power law cannot be told apart from it; "
        "a quadratic is 8.2 AIC worse; left out: a broken line needs at least 4 distinct x; there are 3"
    )


def test_fits_of_different_data_are_not_compared() -> None:
    y = simulated("linear")
    with pytest.raises(UsageError, match="different data"):
        compare([fit("linear", X, y), fit("quadratic", X[5:], y[5:])])
    with pytest.raises(UsageError, match="no fit"):
        best([])


@pytest.mark.parametrize("law", LAWS)
def test_equal_values_are_a_flat_law(law: str) -> None:
    found = fit(law, X, np.full(len(X), 0.25))
    assert found.predict(X) == pytest.approx(0.25)
    assert np.isfinite(found.aicc)


def test_of_laws_that_fit_exactly_the_simplest_is_best() -> None:
    fits, _ = fit_all(X, 0.1 + 0.02 * X)
    assert best(fits).law == "linear"
    assert best(fits).parameters["slope"] == pytest.approx(0.02)


def test_two_x_allow_a_line_and_nothing_else() -> None:
    x = np.repeat([1.0, 2.0], 5)
    fits, left_out = fit_all(x, simulated("linear", x=x))
    assert [one.law for one in fits] == ["linear"]
    assert left_out["quadratic"] == "a quadratic needs at least 3 distinct x; there are 2"
    assert "a broken line needs at least 4 distinct x; there are 2" in compare(fits, left_out)


def test_mistakes_are_not_reasons_to_leave_a_law_out() -> None:
    with pytest.raises(UsageError, match="unknown law 'cubic'"):
        fit_all(X, simulated("linear"), laws=["linear", "cubic"])
    with pytest.raises(UsageError, match="not finite"):
        fit_all(X, np.full(len(X), np.nan))


def test_points_at_the_ceiling_do_not_count_as_distinct_x() -> None:
    x = np.repeat([1.0, 2.0, 3.0], 5)
    y = np.where(x > 1, 1.0, simulated("linear", x=x))
    with pytest.raises(UsageError, match="needs at least 2 distinct x below the ceiling; there are 1"):
        fit("linear", x, y, ceiling=1.0)


def test_single_seeds_give_a_fit_without_intervals() -> None:
    x = np.arange(1.0, 11.0)
    found = fit("linear", x, simulated("linear", x=x))
    assert found.parameters["slope"] == pytest.approx(0.03, abs=0.01)
    assert np.isnan(found.intervals["slope"]).all()
    assert "no interval: too few seeds" in found.words()


@pytest.mark.parametrize(
    ("law", "x", "y", "ceiling", "words"),
    [
        ("linear", [1, 2, 3, 4, np.nan], [1, 2, 3, 4, 5], None, "1 of 5 values of x are not finite numbers"),
        ("linear", [1, 2, 3, 4, 5], [1, 2, np.nan, np.inf, 5], None, "2 of 5 values of y are not finite numbers"),
        ("linear", [1, 2, 3], [1, 2], None, "lists of equal length"),
        ("linear", [], [], None, "there are no points"),
        ("linear", [1, 2, 3], [1, 1, 1], 1.0, "all 3 points are at the ceiling 1"),
        ("linear", [1, 2, 3], [1, 2, 3], None, "needs at least 5 points; there are 3"),
        ("power", [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], None, "needs x above 0; the least is 0"),
        ("lineer", [1], [1], None, "unknown law 'lineer'; did you mean 'linear'?"),
    ],
)
def test_data_that_cannot_be_fitted_say_why(
    law: str, x: list[float], y: list[float], ceiling: float | None, words: str
) -> None:
    with pytest.raises(UsageError) as error:
        fit(law, x, y, ceiling)
    assert words in str(error.value)
