"""The InfoNCE bound against the truth: below it, below log N, and tighter with N; beside NWJ and DV."""

import math
from itertools import pairwise

import torch
from torch import Tensor

from nearfar.lab.estimators import (
    BOUNDS,
    Critic,
    Estimator,
    best_critic,
    correlated_gaussians,
    correlation_for,
    info_nce_bound,
    measure,
    pair_scores,
    train_critic,
)
from nearfar.lab.findings import Cell, Claim, Findings, Line, Panel, Table, Tell, mean_and_error, quiet
from nearfar.lab.proof import contrastive_task

WEATHER = ((0.2, 0.5), (0.3, 0.0))  # sun and rain, with and without an umbrella
_DIMENSION = 8
_ERRORS = 5.0  # standard errors that chance may take
_NAMES: dict[Estimator, str] = {"info_nce": "InfoNCE", "nwj": "NWJ", "dv": "DV (MINE)"}

Part = tuple[list[Claim], Table, list[Panel]]


def bound(seed: int = 0, *, quick: bool = False, tell: Tell = quiet) -> Findings:
    """`log N - L` on tables (by counting), on correlated Gaussians with the best critic, and with trained ones."""
    generator = torch.Generator().manual_seed(seed)
    parts = [_counted(), _best(generator, quick, tell), _tightness(generator, quick, tell)]
    parts.append(_estimators(generator, quick, tell))
    return Findings(
        "bound",
        "log N - L is at most I(x; c) and at most log N: the best L is H(v|X,c) = log N - I(x;c) + I(X;c).",
        claims=[claim for claims, _, _ in parts for claim in claims],
        tables=[table for _, table, _ in parts],
        panels=[panel for _, _, panels in parts for panel in panels],
    )


def _counted() -> Part:
    """The proof on a table, every outcome counted."""
    tasks = {n: contrastive_task(WEATHER, n) for n in (2, 3, 5, 8)}
    bounds = [task.bound(n) for n, task in tasks.items()]
    truth = tasks[2].information
    off = max(abs(t.least_loss - (math.log(n) - t.information + t.candidates)) for n, t in tasks.items())
    rows = [
        (n, t.least_loss, math.log(n) - t.information + t.candidates, t.bound(n), t.information)
        for n, t in tasks.items()
    ]
    claims = [
        Claim("table: H(v|X,c) - (log N - I(x;c) + I(X;c)), largest", "=", 0.0, off, 1e-12),
        Claim("table: best bound at N = 8, at most I", "≤", truth, bounds[-1]),
        Claim("table: least gain from one N to the next", "≥", 0.0, min(b - a for a, b in pairwise(bounds))),
    ]
    columns = ("N", "H(v|X,c), counted", "log N - I + I(X;c)", "best bound", "I(x;c)")
    return claims, Table("weather and umbrella, by counting, in nats", columns, rows), []


def _best(generator: torch.Generator, quick: bool, tell: Tell) -> Part:
    """Correlated Gaussians, the best critic: the only things that matter are I and N."""
    truths, sizes = (1.0, 2.0, 4.0, 8.0), (2, 8, 32, 128) if quick else (2, 8, 32, 128, 512)
    found: dict[tuple[float, int], tuple[float, float]] = {}
    above_ceiling = -math.inf
    for truth in truths:
        rho = correlation_for(truth, _DIMENSION)
        for n in sizes:
            tell(f"best critic: I = {truth:g}, N = {n}")
            batches = max(8, (512 if quick else 4096) // n)
            values = torch.stack([_of_best(n, rho, generator) for _ in range(batches)])
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
        Claim("Gaussians: bound of any batch above log N, largest", "≤", 0.0, above_ceiling, 1e-9),
        Claim("Gaussians: fall from one N to the next, in standard errors, largest", "≤", 0.0, falls, _ERRORS),
        Claim(f"Gaussians: gain from N = 2 to {sizes[-1]}, least", "≥", 0.2, gain),
    ]
    rows: list[tuple[Cell, ...]] = [
        (n, math.log(n), *(f"{found[truth, n][0]:.3f} ± {found[truth, n][1]:.3f}" for truth in truths)) for n in sizes
    ]
    lines = [Line(f"I = {truth:g}", sizes, [found[truth, n][0] for n in sizes]) for truth in truths]
    ceiling = Line("ceiling log N", sizes, [math.log(n) for n in sizes], "limit")
    truth_lines = [Line(f"I = {truth:g}", [sizes[0], sizes[-1]], [truth, truth], "predicted") for truth in truths]
    panel = Panel("log N - L of the best critic; dashed: I", "N", "nats", [*lines, *truth_lines, ceiling], log="x")
    title = f"correlated Gaussians in {_DIMENSION} dimensions: log N - L of the best critic, nats"
    return claims, Table(title, ("N", "log N", *(f"I = {t:g}" for t in truths)), rows), [panel]


def _tightness(generator: torch.Generator, quick: bool, tell: Tell) -> Part:
    """How far below the truth: (e^{2I} - 1) / 2N to first order, since E[p(x,y) / p(x)p(y)] is e^{2I} here."""
    truth, sizes = 1.0, (128, 256) if quick else (128, 256, 512, 1024)
    rho = correlation_for(truth, _DIMENSION)
    rows, claims = [], []
    for n in sizes:
        tell(f"how tight: N = {n}")
        values = torch.stack([_of_best(n, rho, generator, gap=True) for _ in range((4096 if quick else 32768) // n)])
        measured, error = mean_and_error(values)
        predicted = (math.exp(2 * truth) - 1) / (2 * n)
        rows.append((n, predicted, f"{measured:.4f} ± {error:.4f}"))
        claims.append(
            Claim(f"Gaussians: I minus bound at N = {n}", "=", predicted, measured, 0.2 * predicted + 4 * error)
        )
    return claims, Table("how far below I = 1", ("N", "(e^2I - 1) / 2N", "measured"), rows), []


def _estimators(generator: torch.Generator, quick: bool, tell: Tell) -> Part:
    """InfoNCE, NWJ and DV with critics trained on fresh batches of 128, beside the best critic."""
    n, dimension, batches = 128, 4, 30 if quick else 200
    truths = (2.0,) if quick else (1.0, 2.0, 3.0)
    rows, claims = [], []
    lines: dict[Estimator, list[float]] = {name: [] for name in BOUNDS}
    order = -math.inf  # of NWJ above DV, with the same critic and batch
    for truth in truths:
        rho = correlation_for(truth, dimension)

        def draw(rho: float = rho) -> tuple[Tensor, Tensor]:
            return correlated_gaussians(n, dimension, rho, generator)

        for name, value in BOUNDS.items():
            tell(f"training a critic by {_NAMES[name]}, I = {truth:g}")
            critic = Critic(dimension, generator)
            train_critic(name, critic, draw, steps=150 if quick else 500)
            found = measure(value, critic, draw, batches)
            mean, error = mean_and_error(found)
            best, best_error = mean_and_error(measure(value, lambda x, y, r=rho: best_critic(x, y, r), draw, batches))
            rows.append((truth, _NAMES[name], mean, float(found.std()), best))
            lines[name].append(mean)
            most, chance = (best, math.hypot(error, best_error)) if name == "info_nce" else (truth, error)
            limit = "the best critic's" if name == "info_nce" else "I"
            claims.append(
                Claim(f"{_NAMES[name]}, trained, I = {truth:g}: at most {limit}", "≤", most, mean, 5 * chance + 0.01)
            )
            claims.append(Claim(f"{_NAMES[name]}, trained, I = {truth:g}: has learned", "≥", truth / 2, mean))
            pairs = [critic(*draw()) for _ in range(10)]
            order = max(order, *(float((BOUNDS["nwj"](u, w) - BOUNDS["dv"](u, w)).detach()) for u, w in pairs))
    claims.append(Claim("NWJ above DV with the same critic and batch, largest", "≤", 0.0, order, 1e-5))
    spread, spread_claim = _spread(n, generator, batches)
    claims.append(spread_claim)
    panels = [
        Panel(
            f"trained on batches of {n}",
            "true I",
            "estimate",
            [
                *(Line(_NAMES[name], truths, lines[name]) for name in BOUNDS),
                Line("truth", [0, truths[-1]], [0, truths[-1]], "limit"),
            ],
        ),
        spread,
    ]
    columns = ("I", "estimator", "trained critic", "deviation of a batch", "best critic")
    return claims, Table(f"estimators with small critics, batches of {n}, nats", columns, rows), panels


def _spread(n: int, generator: torch.Generator, batches: int) -> tuple[Panel, Claim]:
    """The other bounds have no ceiling, and pay for it: their deviation grows as e^I."""
    truths, dimension = (1.0, 2.0, 4.0, 6.0), 8
    deviations: dict[Estimator, list[float]] = {name: [] for name in BOUNDS}
    for truth in truths:
        rho = correlation_for(truth, dimension)

        def draw(rho: float = rho) -> tuple[Tensor, Tensor]:
            return correlated_gaussians(n, dimension, rho, generator, torch.float64)

        for name, value in BOUNDS.items():
            found = measure(value, lambda x, y, r=rho: best_critic(x, y, r), draw, batches)
            deviations[name].append(float(found.std()))
    lines = [Line(_NAMES[name], truths, deviations[name]) for name in BOUNDS]
    ratio = deviations["nwj"][-1] / deviations["info_nce"][-1]
    claim = Claim("I = 6: deviation of NWJ over that of InfoNCE, best critic", "≥", 1.0, ratio)
    return Panel("deviation of a batch, best critic", "true I", "nats", lines, log="y"), claim


def _of_best(n: int, rho: float, generator: torch.Generator, *, gap: bool = False) -> Tensor:
    """The bound of one batch with the best critic; or how far it is below the pairs' own log-ratio, whose mean is I."""
    x, y = correlated_gaussians(n, _DIMENSION, rho, generator, torch.float64)
    u, w = best_critic(x, y, rho)
    value = info_nce_bound(u, w)
    return pair_scores(u, w).mean() - value if gap else value
