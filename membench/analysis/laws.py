"""Laws fitted to the raw numbers of all seeds: maximum likelihood, intervals by bootstrap, comparison by AIC.

The noise is Gaussian. Points at a ceiling, such as an accuracy of 1, are kept: they say that the law lies at
or above the ceiling there (Tobin 1958). Every law is linear in its parameters but for at most one, its shape
(an exponent, a break). For a fixed shape the likelihood is concave in Olsen's (1978) parameters, so that
Newton's method finds its maximum; the shape is searched on a grid that closes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from membench.analysis.intervals import percentiles, resampled_weights
from membench.errors import UsageError, unknown

Array = NDArray[np.float64]
CLOSE = 2.0  # laws whose AIC differs by less are not told apart (Burnham and Anderson 2002, section 2.6)
AT_CEILING = 1e-9
EXPONENTS = (-4.0, 6.0)
_NODES = 17  # of the grid on which a shape is searched
_FAR = 12.0  # of log-likelihood: about five standard errors
_EXACT = 1e-5  # least noise, as a part of the range of y, so that a law that fits exactly has a likelihood


@dataclass(frozen=True)
class Law:
    """A family of curves: its columns for a shape, and its named parameters from their coefficients."""

    name: str
    words: str
    parameters: tuple[str, ...]
    columns: Callable[[Array, Array | float], Array]
    named: Callable[[Array, Array, Array], tuple[Array, ...]]  # x, coefficients, shapes
    mean: Callable[..., Array]
    shapes: Callable[[Array], tuple[float, float]] | None = None  # the range in which the shape is searched
    positive: bool = False

    @property
    def distinct(self) -> int:
        """How many distinct x below the ceiling it needs."""
        return len(self.parameters)


@dataclass(frozen=True)
class Fit:
    """A law with the parameters that make the data most likely. Intervals are NaN when seeds are too few."""

    law: str
    parameters: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    sigma: float
    aicc: float
    points: int
    censored: int
    ceiling: float | None = None

    def predict(self, x: Any) -> Array:
        """The law at x, cut at the ceiling."""
        latent = LAWS[self.law].mean(np.asarray(x, dtype=float), **self.parameters)
        return latent if self.ceiling is None else np.minimum(latent, self.ceiling)

    def words(self, unit: str = "unit") -> str:
        """Its parameters but the offset, each with its interval."""
        shown = [name for name in self.parameters if name != "offset"]
        return ", ".join(self._parameter(name, unit) for name in shown)

    def _parameter(self, name: str, unit: str) -> str:
        low, high = self.intervals[name]
        per = {"slope": f" per {unit}", "slope after": f" per {unit}", "curvature": f" per {unit} squared"}
        interval = f"95 % {low:.3g} to {high:.3g}" if np.isfinite(low) else "no interval: too few seeds"
        return f"{name} {self.parameters[name]:.3g}{per.get(name, '')} ({interval})"


def fit(law: str, x: Any, y: Any, ceiling: float | None = None, *, intervals: bool = True) -> Fit:
    """The law, fitted to one point for each seed. UsageError when the points are too few or not numbers.

    Without `intervals`, which take nearly all the time, they are NaN.
    """
    return _fit(_known(law), _Data.of(x, y, ceiling), intervals)


def _known(law: str) -> Law:
    if law not in LAWS:
        raise unknown("law", law, LAWS, f"known: {', '.join(LAWS)}")
    return LAWS[law]


def fit_all(
    x: Any, y: Any, ceiling: float | None = None, *, laws: Sequence[str] = (), intervals: bool = True
) -> tuple[list[Fit], dict[str, str]]:
    """Every law that the data allow, and for each of the others the reason. UsageError for bad data."""
    fits: list[Fit] = []
    left_out: dict[str, str] = {}
    data = _Data.of(x, y, ceiling)
    for law in [_known(name) for name in laws or LAWS]:
        try:
            fits.append(_fit(law, data, intervals))
        except UsageError as error:
            left_out[law.name] = str(error)
    return fits, left_out


def best(fits: Sequence[Fit]) -> Fit:
    """The fit with the least AIC (corrected for small samples); of equals the one with fewest parameters."""
    if not fits:
        raise UsageError("there is no fit to choose from; at least one law must be fitted")
    if len({(one.points, one.censored, one.ceiling) for one in fits}) > 1:
        raise UsageError("fits of different data cannot be compared; fit all laws to the same points")
    return min(fits, key=lambda one: (round(one.aicc, 2), len(one.parameters)))


def compare(fits: Sequence[Fit], left_out: Mapping[str, str] | None = None) -> str:
    """One sentence: which law describes the data best, by how much, and which could not be fitted."""
    winner = best(fits)
    others = sorted((one for one in fits if one is not winner), key=lambda one: one.aicc)
    clauses = [f"{LAWS[winner.law].words} describes the data best", *(_against(one, winner) for one in others)]
    clauses += [f"left out: {reason}" for reason in (left_out or {}).values()]
    return "; ".join(clauses)


def _against(other: Fit, winner: Fit) -> str:
    difference = other.aicc - winner.aicc
    words = LAWS[other.law].words
    return f"{words} cannot be told apart from it" if difference < CLOSE else f"{words} is {difference:.1f} AIC worse"


def _fit(law: Law, data: _Data, intervals: bool) -> Fit:
    _require_enough(law, data)
    found, window = _most_likely(law, data)
    parameters = len(law.parameters) + 1  # and the noise
    points = len(data.x)
    correction = 2 * parameters * (parameters + 1) / (points - parameters - 1)
    drawn = _bootstrap(law, data, window) if intervals else [np.empty(0)] * len(law.parameters)
    return Fit(
        law=law.name,
        parameters={name: float(value[0]) for name, value in zip(law.parameters, found.values(law, data), strict=True)},
        intervals={name: _interval(values) for name, values in zip(law.parameters, drawn, strict=True)},
        sigma=float(found.sigma[0]) * data.scale,
        aicc=float(2 * parameters + correction - 2 * found.likelihood[0]),
        points=points,
        censored=int(data.censored.sum()),
        ceiling=data.ceiling,
    )


def _require_enough(law: Law, data: _Data) -> None:
    if law.positive and (data.x <= 0).any():
        raise UsageError(f"{law.words} needs x above 0; the least is {data.x.min():g}")
    free = len(np.unique(data.x[~data.censored]))
    if free < law.distinct:
        below = " below the ceiling" if data.ceiling is not None else ""
        raise UsageError(f"{law.words} needs at least {law.distinct} distinct x{below}; there are {free}")
    needed = len(law.parameters) + 3  # the noise is a parameter too, and the corrected AIC needs one more than that
    if len(data.x) < needed:
        raise UsageError(f"{law.words} needs at least {needed} points; there are {len(data.x)}")


def _interval(resampled: Array) -> tuple[float, float]:
    low, high = percentiles(resampled) if len(resampled) else (np.nan, np.nan)
    return float(low), float(high)


@dataclass(frozen=True)
class _Data:
    """Points, with y brought to a range of about one; those at the ceiling are marked."""

    x: Array
    y: Array  # scaled
    censored: NDArray[np.bool_]
    ceiling: float | None
    middle: float
    scale: float

    @classmethod
    def of(cls, x: Any, y: Any, ceiling: float | None) -> _Data:
        x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        if x.ndim != 1 or x.shape != y.shape:
            raise UsageError(f"x and y must be lists of equal length; they have the shapes {x.shape} and {y.shape}")
        for name, values in (("x", x), ("y", y)):
            wrong = int((~np.isfinite(values)).sum())
            if wrong:
                raise UsageError(f"{wrong} of {len(values)} values of {name} are not finite numbers")
        censored = np.zeros(len(y), dtype=bool) if ceiling is None else y >= ceiling - AT_CEILING
        if censored.all():
            raise UsageError(f"all {len(y)} points are at the ceiling {ceiling:g}" if len(y) else "there are no points")
        middle = float(y.mean())
        scale = float(np.ptp(y)) or 1.0
        return cls(x, (y - middle) / scale, censored, ceiling, middle, scale)

    @property
    def scaled_ceiling(self) -> float:
        return 0.0 if self.ceiling is None else (self.ceiling - self.middle) / self.scale


@dataclass(frozen=True)
class _Found:
    """Maxima of the likelihood, one for each row of weights."""

    coefficients: Array  # [rows, columns]
    sigma: Array
    likelihood: Array
    shapes: Array

    @property
    def theta(self) -> Array:
        """Olsen's parameters: coefficients / sigma and 1 / sigma."""
        return np.column_stack([self.coefficients, np.ones(len(self.sigma))]) / self.sigma[:, None]

    def values(self, law: Law, data: _Data) -> tuple[Array, ...]:
        """The named parameters in the units of the data."""
        coefficients = self.coefficients * data.scale
        coefficients[:, 0] += data.middle
        return law.named(data.x, coefficients, self.shapes)


def _most_likely(law: Law, data: _Data) -> tuple[_Found, tuple[float, float]]:
    """The fit to all points, and the range of shapes that are not far less likely than the best."""
    weights = np.ones((1, len(data.x)))
    if law.shapes is None:
        return _at_shape(law, data, weights, 0.0), (0.0, 0.0)
    nodes = np.linspace(*law.shapes(data.x[~data.censored]), 2 * _NODES)
    heights = np.array([_at_shape(law, data, weights, node).likelihood[0] for node in nodes])
    likely = np.flatnonzero(heights > heights.max() - _FAR)
    window = nodes[max(likely[0] - 1, 0)], nodes[min(likely[-1] + 1, len(nodes) - 1)]
    return _refined(law, data, weights, nodes, int(heights.argmax())), (float(window[0]), float(window[1]))


def _refined(law: Law, data: _Data, weights: Array, nodes: Array, top: int) -> _Found:
    """The best shape around the best node of a grid, by Brent's method."""
    from scipy.optimize import minimize_scalar

    at_node = _at_shape(law, data, weights, nodes[top])
    found = minimize_scalar(
        lambda shape: -float(_at_shape(law, data, weights, shape).likelihood[0]),
        bounds=(nodes[max(top - 1, 0)], nodes[min(top + 1, len(nodes) - 1)]),
        method="bounded",
        options={"xatol": 1e-6 * (nodes[1] - nodes[0])},
    )
    return at_node if -found.fun < at_node.likelihood[0] else _at_shape(law, data, weights, float(found.x))


def _bootstrap(law: Law, data: _Data, window: tuple[float, float]) -> tuple[Array, ...]:
    """Each parameter in each resample; empty when there are no seeds to draw from."""
    weights = resampled_weights(data.x)
    if not len(weights):
        return tuple(np.empty(0) for _ in law.parameters)
    if law.shapes is None:
        return _at_shape(law, data, weights, 0.0).values(law, data)
    low, high = window
    for _ in range(8):  # the grid closes in on what the resamples choose, until that fills half of it
        found = _best_node(law, data, weights, np.linspace(low, high, _NODES))
        step, chosen = (high - low) / (_NODES - 1), (found.shapes.min(), found.shapes.max())
        if chosen[1] - chosen[0] > (high - low) / 2:
            break
        low, high = max(low, chosen[0] - 2 * step), min(high, chosen[1] + 2 * step)
    return found.values(law, data)


def _best_node(law: Law, data: _Data, weights: Array, nodes: Array) -> _Found:
    """For each row of weights the best shape of a grid, moved to the top of the parabola through its neighbours."""
    at_nodes: list[_Found] = []
    for node in nodes:
        at_nodes.append(_at_shape(law, data, weights, node, at_nodes[-1] if at_nodes else None))
    heights = np.stack([found.likelihood for found in at_nodes])
    top = heights.argmax(axis=0)
    rows = np.arange(len(weights))
    inner = np.clip(top, 1, len(nodes) - 2)
    left, centre, right = (heights[inner + offset, rows] for offset in (-1, 0, 1))
    bend = left - 2 * centre + right
    shift = np.divide(left - right, 2 * bend, out=np.zeros_like(bend), where=bend < 0)
    shapes = nodes[top] + np.where(top == inner, np.clip(shift, -0.5, 0.5), 0.0) * (nodes[1] - nodes[0])
    coefficients = np.stack([found.coefficients for found in at_nodes])[top, rows]
    sigma = np.stack([found.sigma for found in at_nodes])[top, rows]
    return _Found(coefficients, sigma, heights[top, rows], shapes)


def _at_shape(law: Law, data: _Data, weights: Array, shape: float, near: _Found | None = None) -> _Found:
    """The maximum over all parameters but the shape, for each row of weights; sooner from a fit that is near."""
    problem = _Tobit.of(law.columns(data.x, shape), data, weights)
    theta = problem.maximise(near.theta if near else None)
    sigma = 1 / theta[:, -1]
    points = weights[:, ~data.censored].sum(axis=1)
    likelihood = problem.height(theta) - points * np.log(data.scale * np.sqrt(2 * np.pi))
    return _Found(theta[:, :-1] * sigma[:, None], sigma, likelihood, np.full(len(weights), shape))


@dataclass(frozen=True)
class _Tobit:
    """The log-likelihood in Olsen's parameters: coefficients / sigma and 1 / sigma. It is concave.

    Below the ceiling it is a quadratic form plus a logarithm, so that sums over points are made once.
    At the ceiling all seeds of one x say the same, so that they are one row with their common weight.
    """

    moments: Array  # [rows, q, q]
    points: Array  # [rows], below the ceiling
    start: Array  # [rows, q]
    edges: Array  # [distinct x at the ceiling, q]
    edge_weights: Array  # [rows, distinct x at the ceiling]

    @classmethod
    def of(cls, columns: Array, data: _Data, weights: Array) -> _Tobit:
        every = np.column_stack([columns, -data.y])
        free = ~data.censored
        moments = _moments(every[free], weights[:, free])
        q = every.shape[1]
        total = weights.sum(axis=1)
        moments[:, range(q), range(q)] += total[:, None] * np.array([1e-12] * (q - 1) + [_EXACT**2])
        at_ceiling = np.column_stack([columns, np.full(len(columns), -data.scaled_ceiling)])[data.censored]
        edges, which = np.unique(at_ceiling, axis=0, return_inverse=True)
        member = (which.reshape(-1, 1) == np.arange(len(edges))).astype(float)
        start = _least_squares(_moments(every, weights), total)
        return cls(moments, weights[:, free].sum(axis=1), start, edges, weights[:, data.censored] @ member)

    def height(self, theta: Array) -> Array:
        from scipy.special import log_ndtr

        quadratic = np.einsum("ri,rij,rj->r", theta, self.moments, theta) / 2
        above = (self.edge_weights * log_ndtr(theta @ self.edges.T)).sum(axis=1)
        return np.asarray(self.points * np.log(theta[:, -1]) - quadratic + above)

    def maximise(self, near: Array | None = None) -> Array:
        """Newton's method with halved steps where a whole one would go down."""
        if not len(self.edges):
            return self.start  # least squares are the maximum
        theta, height = self.start, self.height(self.start)
        if near is not None:
            nearer = self.height(near) > height
            theta, height = np.where(nearer[:, None], near, theta), np.where(nearer, self.height(near), height)
        for _ in range(100):
            before = height
            theta, height = self._ascend(theta, height, self._step(theta))
            if (height - before < 1e-9 * (1 + abs(height))).all():
                break
        return theta

    def _step(self, theta: Array) -> Array:
        gradient, curvature = self._derivatives(theta)
        return np.asarray(np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0])

    def _derivatives(self, theta: Array) -> tuple[Array, Array]:
        from scipy.special import log_ndtr

        margin = theta @ self.edges.T
        ratio = np.exp(-(margin**2) / 2 - log_ndtr(margin)) / np.sqrt(2 * np.pi)
        gradient = -np.einsum("rij,rj->ri", self.moments, theta) + (self.edge_weights * ratio) @ self.edges
        gradient[:, -1] += self.points / theta[:, -1]
        curvature = self.moments + _moments(self.edges, self.edge_weights * ratio * (ratio + margin))
        curvature[:, -1, -1] += self.points / theta[:, -1] ** 2
        return gradient, curvature

    def _ascend(self, theta: Array, height: Array, step: Array) -> tuple[Array, Array]:
        length = np.ones(len(theta))
        for _ in range(40):
            ahead = theta + length[:, None] * step
            inside = ahead[:, -1] > 0
            ahead = np.where(inside[:, None], ahead, theta)
            reached = self.height(ahead)
            down = ~inside | (reached < height - 1e-12 * (1 + abs(height)))
            if not down.any():
                break
            length = np.where(down, length / 2, length)
        return np.where(down[:, None], theta, ahead), np.where(down, height, reached)


def _moments(columns: Array, weights: Array) -> Array:
    """Weighted sums of products of columns, [rows, q, q]."""
    q = columns.shape[1]
    products = (columns[:, :, None] * columns[:, None, :]).reshape(-1, q * q)
    return np.asarray((weights @ products).reshape(-1, q, q))


def _least_squares(moments: Array, total: Array) -> Array:
    """Olsen's parameters of the fit that takes points at the ceiling as they are: where Newton starts."""
    squares, products = moments[:, :-1, :-1], -moments[:, :-1, -1]
    ridge = 1e-12 * total[:, None, None] * np.eye(squares.shape[1])
    coefficients = np.asarray(np.linalg.solve(squares + ridge, products[:, :, None])[:, :, 0])
    residual = moments[:, -1, -1] - (coefficients * products).sum(axis=1)
    precision = 1 / np.sqrt(np.maximum(residual / total, 0) + _EXACT**2)
    return np.column_stack([coefficients * precision[:, None], precision])


def _centre(x: Array) -> tuple[float, float]:
    return float(x.mean()), float(np.ptp(x) / 2) or 1.0


def _polynomial(degree: int) -> Callable[[Array, Array | float], Array]:
    def columns(x: Array, shape: Array | float) -> Array:
        middle, half = _centre(x)
        return np.vander((x - middle) / half, degree + 1, increasing=True)

    return columns


def _named_line(x: Array, found: Array, shapes: Array) -> tuple[Array, ...]:
    middle, half = _centre(x)
    slope = found[:, 1] / half
    return found[:, 0] - slope * middle, slope


def _named_quadratic(x: Array, found: Array, shapes: Array) -> tuple[Array, ...]:
    middle, half = _centre(x)
    slope, curvature = found[:, 1] / half, found[:, 2] / half**2
    return found[:, 0] - slope * middle + curvature * middle**2, slope - 2 * curvature * middle, curvature


def _power_columns(x: Array, shape: Array | float) -> Array:
    """One and (u^c - 1) / c, which is ln u at c = 0 and spans the same curves as x^c."""
    logarithm = np.log(x)
    exponent = _nonzero(shape)
    return np.column_stack([np.ones(len(x)), np.expm1(exponent * (logarithm - logarithm.mean())) / exponent])


def _nonzero(shape: Any) -> Any:
    return np.where(np.abs(shape) < 1e-6, 1e-6, shape)


def _named_power(x: Array, found: Array, shapes: Array) -> tuple[Array, ...]:
    exponent = np.asarray(_nonzero(shapes))
    height = found[:, 1] / exponent
    return found[:, 0] - height, height * np.exp(-exponent * np.log(x).mean()), exponent


def _broken_columns(x: Array, shape: Array | float) -> Array:
    middle, half = _centre(x)
    return np.column_stack([np.ones(len(x)), (x - middle) / half, np.maximum(x - shape, 0) / half])


def _named_broken(x: Array, found: Array, shapes: Array) -> tuple[Array, ...]:
    middle, half = _centre(x)
    slope = found[:, 1] / half
    return found[:, 0] - slope * middle, slope, slope + found[:, 2] / half, shapes


def _between(x: Array) -> tuple[float, float]:
    """Breaks that leave two distinct x on either side."""
    distinct = np.unique(x)
    return float(distinct[1]), float(distinct[-2])


def _line(x: Array, **p: float) -> Array:
    return p["offset"] + p["slope"] * x


def _quadratic(x: Array, **p: float) -> Array:
    return p["offset"] + p["slope"] * x + p["curvature"] * x**2


def _power(x: Array, **p: float) -> Array:
    return np.asarray(p["offset"] + p["scale"] * x ** p["exponent"])


def _broken(x: Array, **p: float) -> Array:
    bend = (p["slope after"] - p["slope"]) * np.maximum(x - p["break"], 0)
    return np.asarray(p["offset"] + p["slope"] * x + bend)


LAWS: dict[str, Law] = {
    law.name: law
    for law in (
        Law("linear", "a straight line", ("offset", "slope"), _polynomial(1), _named_line, _line),
        Law("quadratic", "a quadratic", ("offset", "slope", "curvature"), _polynomial(2), _named_quadratic, _quadratic),
        Law("power", "a power law", ("offset", "scale", "exponent"), _power_columns, _named_power, _power,
            shapes=lambda x: EXPONENTS, positive=True),
        Law("piecewise", "a broken line", ("offset", "slope", "slope after", "break"), _broken_columns, _named_broken,
            _broken, shapes=_between),
    )
}  # fmt: skip
