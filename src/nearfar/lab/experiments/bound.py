"""The InfoNCE bound against the truth: below it, below log N, and tighter with N; beside NWJ and DV."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from nearfar.lab.estimators import (
    BOUNDS,
    Critic,
    Estimator,
    bound_on_batches,
    correlated_gaussians,
    correlation_from_information,
    expected_gap,
    info_nce_bound,
    log_mean_exp_negatives,
    optimal_bounds,
    optimal_critic,
    pair_scores,
    train_critic,
)
from nearfar.lab.findings import Cell, Claim, Line, Panel, Part, Progress, Table, experiment, mean_and_error
from nearfar.lab.proof import contrastive_task

WEATHER = ((0.2, 0.5), (0.3, 0.0))  # sun and rain, with and without an umbrella
_DIMENSION = 8
_ERRORS = 5.0  # standard errors that chance may take
_FIRST_ORDER = 0.1  # of the gap, which the terms after the first may take
_NAMES: dict[Estimator, str] = {"info_nce": "InfoNCE", "nwj": "NWJ", "dv": "DV (MINE)"}


@experiment("log N - L is at most I(x; c) and at most log N: the best L is H(v|X,c) = log N - I(x;c) + I(X;c).")
def bound(generator: torch.Generator, quick: bool, progress: Progress) -> list[Part]:
    """`log N - L` on tables (by counting), on correlated Gaussians with the best critic, and with trained ones."""
    parts = [part(generator, quick, progress) for part in (_best, _tightness, _estimators)]
    return [_counted(), *parts]


def _counted() -> Part:
    """The proof on a table, every outcome counted."""
    tasks = {n: contrastive_task(WEATHER, n) for n in (2, 3, 5, 8)}
    bounds = [task.bound(n) for n, task in tasks.items()]
    truth = tasks[2].information
    off = max(abs(t.least_loss - (math.log(n) - t.information + t.candidates)) for n, t in tasks.items())
    gain = min(b - a for a, b in pairwise(bounds))
    rows = [
        (n, t.least_loss, math.log(n) - t.information + t.candidates, t.bound(n), t.information)
        for n, t in tasks.items()
    ]
    claims = [
        Claim("table: H(v|X,c) - (log N - I(x;c) + I(X;c)), largest", "=", 0.0, off, 1e-12, "identity"),
        Claim("table: best bound at N = 8, at most I", "≤", truth, bounds[-1], kind="identity"),
        Claim("table: least gain from one N to the next", "≥", 0.0, gain, kind="identity"),
    ]
    columns = ("N", "H(v|X,c), counted", "log N - I + I(X;c)", "best bound", "I(x;c)")
    return claims, Table("weather and umbrella, by counting, in nats", columns, rows), []


def _best(generator: torch.Generator, quick: bool, progress: Progress) -> Part:
    """Correlated Gaussians, the best critic: below I and log N for all, and known where N is large against e^{2I}."""
    truths, sizes = (0.5, 1.0, 2.0, 4.0, 8.0), (2, 8, 32, 128) if quick else (2, 8, 32, 128, 512)
    found: dict[tuple[float, int], tuple[float, float]] = {}
    above_ceiling = -math.inf
    for truth in truths:
        rho = correlation_from_information(truth, _DIMENSION)
        for n in sizes:
            progress(f"best critic: I = {truth:g}, N = {n}")
            pairs = 16384 if _is_tight(truth, n) else 512 if quick else 4096
            batches = max(8, pairs // n)
            values = optimal_bounds(info_nce_bound, n, _DIMENSION, rho, generator, batches)
            above_ceiling = max(above_ceiling, float(values.max()) - math.log(n))
            found[truth, n] = mean_and_error(values)
    worst = max((v - truth) / e for (truth, _), (v, e) in found.items())
    falls = max(
        (found[truth, a][0] - found[truth, b][0]) / math.hypot(found[truth, a][1], found[truth, b][1])
        for truth in truths
        for a, b in pairwise(sizes)
    )
    gain = min(found[truth, sizes[-1]][0] - found[truth, 2][0] for truth in truths)
    claims = [
        Claim("Gaussians: bound above I, in standard errors, largest", "≤", 0.0, worst, _ERRORS),
        Claim("Gaussians: bound of any batch above log N, largest", "≤", 0.0, above_ceiling, 1e-9, "identity"),
        Claim("Gaussians: fall from one N to the next, in standard errors, largest", "≤", 0.0, falls, _ERRORS),
        Claim(f"Gaussians: gain from N = 2 to {sizes[-1]}, least", "≥", 0.2, gain, kind="ours"),
    ]
    for truth, n in found:
        if _is_tight(truth, n):
            value, error = found[truth, n]
            gap = expected_gap(truth, n)
            claims.append(Claim(f"Gaussians: bound, I = {truth:g}, N = {n}", "=", truth - gap, value, gap + 4 * error))
    rows: list[Sequence[Cell]] = [
        (n, math.log(n), *("{:.3f} ± {:.3f}".format(*found[truth, n]) for truth in truths)) for n in sizes
    ]
    lines = [Line(f"I = {truth:g}", sizes, [found[truth, n][0] for n in sizes]) for truth in truths]
    ceiling = Line("ceiling log N", sizes, [math.log(n) for n in sizes], "limit")
    truth_lines = [Line(f"I = {truth:g}", [sizes[0], sizes[-1]], [truth, truth], "predicted") for truth in truths]
    panel = Panel("log N - L of the best critic; dashed: I", "N", "nats", [*lines, *truth_lines, ceiling], log="x")
    title = f"correlated Gaussians in {_DIMENSION} dimensions: log N - L of the best critic, nats"
    return claims, Table(title, ("N", "log N", *(f"I = {t:g}" for t in truths)), rows), [panel]


def _is_tight(information: float, n: int) -> bool:
    """Whether the first order is most of the gap: little, and few of the N are rare and heavy."""
    return n >= 128 and expected_gap(information, n) < 0.06


def _tightness(generator: torch.Generator, quick: bool, progress: Progress) -> Part:
    """How far below the truth. Where I is small, e^{2I} without its -1 would be off by a factor."""
    sizes, pairs = ((128, 256), 2**16) if quick else ((128, 256, 512), 2**17)
    rows, claims = [], []
    for truth in (0.25, 0.5):
        rho = correlation_from_information(truth, _DIMENSION)
        for n in sizes:
            progress(f"how tight: I = {truth:g}, N = {n}")
            measured, error = mean_and_error(optimal_bounds(_gap, n, _DIMENSION, rho, generator, pairs // n))
            predicted = expected_gap(truth, n)
            rows.append((truth, n, predicted, f"{measured:.5f} ± {error:.5f}", measured / predicted))
            slack = _FIRST_ORDER * predicted + 4 * error
            claims.append(Claim(f"Gaussians: I = {truth:g} minus bound, N = {n}", "=", predicted, measured, slack))
    return claims, Table("how far below I", ("I", "N", "(e^2I - 1) / 2N", "measured", "ratio"), rows), []


def _estimators(generator: torch.Generator, quick: bool, progress: Progress) -> Part:
    """InfoNCE, NWJ and DV with critics trained on fresh batches of 128, beside the best critic."""
    n, dimension, batches = 128, 4, 30 if quick else 200
    truths = (2.0,) if quick else (1.0, 2.0, 3.0)
    rows, claims = [], []
    lines: dict[Estimator, list[float]] = {name: [] for name in BOUNDS}
    order = -math.inf  # of NWJ above DV, with the same critic and batch
    for truth in truths:
        rho = correlation_from_information(truth, dimension)
        draw, optimal = partial(correlated_gaussians, n, dimension, rho, generator), partial(optimal_critic, rho=rho)
        for name, value in BOUNDS.items():
            progress(f"training a critic by {_NAMES[name]}, I = {truth:g}")
            critic = Critic(dimension, generator)
            train_critic(name, critic, draw, steps=150 if quick else 500)
            found = bound_on_batches(value, critic, draw, batches)
            mean, error = mean_and_error(found)
            best, best_error = mean_and_error(bound_on_batches(value, optimal, draw, batches))
            rows.append((truth, _NAMES[name], mean, float(found.std()), best))
            lines[name].append(mean)
            of = f"{_NAMES[name]}, trained, I = {truth:g}"
            if name == "info_nce":
                slack = _ERRORS * math.hypot(error, best_error)
                claims.append(Claim(f"{of}: at most the best critic's", "≤", best, mean, slack))
            elif name == "nwj":  # its mean over batches is a bound; that of DV, a log of a mean, is none
                claims.append(Claim(f"{of}: at most I", "≤", truth, mean, _ERRORS * error))
            claims.append(Claim(f"{of}: has learned", "≥", truth / 2, mean, kind="ours"))
            pairs = [critic(*draw()) for _ in range(10)]
            order = max(order, *(float((BOUNDS["nwj"](u, w) - BOUNDS["dv"](u, w)).detach()) for u, w in pairs))
    claims.append(Claim("NWJ above DV with the same critic and batch, largest", "≤", 0.0, order, 1e-5, "identity"))
    spread, spread_claim = _spread(n, generator, batches)
    claims.append(spread_claim)
    estimates = [Line(_NAMES[name], truths, lines[name]) for name in BOUNDS]
    estimates.append(Line("truth", [0, truths[-1]], [0, truths[-1]], "limit"))
    panels = [Panel(f"trained on batches of {n}", "true I", "estimate", estimates), spread]
    columns = ("I", "estimator", "trained critic", "deviation of a batch", "best critic")
    return claims, Table(f"estimators with small critics, batches of {n}, nats", columns, rows), panels


def _spread(n: int, generator: torch.Generator, batches: int) -> tuple[Panel, Claim]:
    """The other bounds have no ceiling, and pay for it: the variance of a mean of e^f is e^{2I} - 1 over its pairs.

    The pairs that make it so large are rare: of a few hundred batches the deviation grows less than that.
    """
    truths, dimension = (1.0, 2.0, 4.0, 6.0), 8
    deviations: dict[Estimator, list[float]] = {name: [] for name in BOUNDS}
    for truth in truths:
        rho = correlation_from_information(truth, dimension)
        for name, value in BOUNDS.items():
            deviations[name].append(float(optimal_bounds(value, n, dimension, rho, generator, batches).std()))
    lines = [Line(_NAMES[name], truths, deviations[name]) for name in BOUNDS]
    ratio = deviations["nwj"][-1] / deviations["info_nce"][-1]
    claim = Claim("I = 6: deviation of NWJ over that of InfoNCE, best critic", "≥", 2.0, ratio, kind="ours")
    return Panel("deviation of a batch, best critic", "true I", "nats", lines, log="y"), claim


def _gap(u: Tensor, w: Tensor) -> Tensor:
    """How far the bound of a batch is below the pairs' own log-ratio, whose mean is I.

    Ratios of pairs that do not belong together have the mean 1, so what they sum to beyond it is taken off: it is 0 on
    average, and most of the chance.
    """
    beyond = (len(u) - 1) / len(u) * log_mean_exp_negatives(u, w).expm1()
    return pair_scores(u, w).mean() - info_nce_bound(u, w) - beyond
