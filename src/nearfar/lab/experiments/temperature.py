"""Temperature: the gradient in closed form, and how a small τ gives it to the hardest negatives alone."""

import math
from itertools import pairwise

import torch

from nearfar.evaluation.geometry import alignment, uniformity
from nearfar.lab import gradient
from nearfar.lab.findings import Claim, Line, Panel, Part, Progress, Table, experiment, mean_and_error
from nearfar.lab.networks import minimize, mlp
from nearfar.lab.sphere import polygon_uniformity, sphere_points
from nearfar.losses import info_nce, nt_xent

_DIMENSION = 16
_TEMPERATURES = (0.02, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0, 10.0)
_RESOLVED = 100  # negatives that share the gradient, below which a sample of them is not yet the whole sphere


@experiment("∂L/∂s⁺ = (P⁺ - 1)/τ and ∂L/∂s⁻ = P/τ; τ → 0 looks at the hardest negative alone, τ → ∞ weighs all alike.")
def temperature(generator: torch.Generator, quick: bool, progress: Progress) -> list[Part]:
    """Analytic gradient against autograd, weights of evenly spread negatives, and what is learned on the circle."""
    exact = _exactness(generator) + _limits(generator)
    progress("who gets the gradient")
    claims, table, panels = _weights(generator, 2000 if quick else 20_000)
    return [(exact + claims, table, panels), _learned(generator, quick, progress)]


def _exactness(generator: torch.Generator) -> list[Claim]:
    """Closed forms against autograd through `losses.info_nce`, in float64."""
    in_similarities = in_query = balance = 0.0
    q, k, others = (torch.randn(n, 8, generator=generator, dtype=torch.float64) for n in (6, 6, 20))
    s = torch.rand(6, 21, generator=generator, dtype=torch.float64) * 2 - 1
    for tau in (0.05, 0.5, 5.0):
        near, far = gradient.gradient_in_similarities(s[:, 0], s[:, 1:], tau)
        auto_near, auto_far = gradient.autograd_in_similarities(s[:, 0], s[:, 1:], tau)
        in_similarities = max(in_similarities, _off(near, auto_near), _off(far, auto_far))
        balance = max(balance, float((near + far.sum(1)).abs().max()))
        leaf = q.clone().requires_grad_()
        (auto,) = torch.autograd.grad(info_nce(leaf, k, others, temperature=tau, reduction="sum"), leaf)
        in_query = max(in_query, _off(gradient.gradient_in_query(q, k, others, tau), auto))
    return [
        Claim("gradient in the similarities: closed form less autograd", "=", 0.0, in_similarities, 1e-10, "identity"),
        Claim("gradient in the query: closed form less autograd", "=", 0.0, in_query, 1e-10, "identity"),
        Claim("gradient in all similarities of a query, summed", "=", 0.0, balance, 1e-10, "identity"),
    ]


def _limits(generator: torch.Generator) -> list[Claim]:
    """The two ends, with 64 negatives."""
    s = torch.rand(32, 64, generator=generator, dtype=torch.float64) * 2 - 1
    hardest = gradient.negative_weights(s, 1e-7).max(1).values.min()
    hot = gradient.negative_weights(s, 1000.0)
    ratio = float((hot.max(1).values / hot.min(1).values).max())
    return [
        Claim("τ = 1e-7: weight of the hardest negative, least", "=", 1.0, float(hardest), 1e-3),
        Claim("τ = 1000: largest weight over least, at most e^{2/τ}", "≤", math.exp(2e-3), ratio, kind="identity"),
    ]


def _weights(generator: torch.Generator, m: int) -> Part:
    """Evenly spread negatives: the share that counts is exp(-KL(von Mises-Fisher of 1/τ ‖ even))."""
    queries = sphere_points(64, _DIMENSION, generator)
    s = queries @ sphere_points(m, _DIMENSION, generator).T  # (64, M)
    rows, claims = [], []
    for tau in _TEMPERATURES:
        share, error = mean_and_error(gradient.effective_negatives(s, tau) / m)
        top, top_error = mean_and_error(gradient.hardest_weight(s, tau, 0.01))
        even, even_top = (
            gradient.uniform_effective_fraction(tau, _DIMENSION),
            gradient.uniform_hardest_weight(tau, _DIMENSION, 0.01),
        )
        rows.append((tau, even * m, share * m, even_top, top))
        if even * m >= _RESOLVED:
            few = 0.01 + 5 / (even * m)  # what a finite sample adds, relative
            slack = few * even + 5 * error
            claims.append(Claim(f"τ = {tau:g}: share of the negatives that counts", "=", even, share, slack))
            slack = few * even_top + 5 * top_error
            claims.append(Claim(f"τ = {tau:g}: weight of the hardest 1 %", "=", even_top, top, slack))
    predicted, shares = ([row[column] / m for row in rows] for column in (1, 2))
    top_predicted, tops = ([row[column] for row in rows] for column in (3, 4))
    gain = min(b - a for a, b in pairwise(shares))
    claims.append(Claim("share that counts: least gain from one τ to the next", "≥", 0.0, gain, kind="identity"))
    lines = [
        *Line.with_theory("effective negatives", _TEMPERATURES, shares, predicted),
        *Line.with_theory("weight of the hardest 1 %", _TEMPERATURES, tops, top_predicted),
    ]
    panel = Panel(f"{m:,} uniform negatives, D = {_DIMENSION}", "temperature", "fraction", lines, log="xy")
    columns = ("τ", "negatives that count, theory", "measured", "weight of the hardest 1 %, theory", "measured")
    title = f"which of {m:,} uniform negatives get the gradient, D = {_DIMENSION}"
    return claims, Table(title, columns, rows), [panel]


def _learned(generator: torch.Generator, quick: bool, progress: Progress) -> Part:
    """Four clusters mapped to the circle by NT-Xent: a small τ spreads each of them, a large one only their means.

    As τ → ∞ the loss is the mean similarity of all less that of the positives, which four heaps around 0 make least.
    """
    n, starts, steps = 256, 2 if quick else 3, 250 if quick else 300
    centres = torch.randn(4, 8, generator=generator) * 3
    x = centres[torch.arange(n) % 4] + torch.randn(n, 8, generator=generator)
    seeds = torch.randint(2**31, (starts,), generator=generator).tolist()
    rows, clouds, spread = [], [], []
    for tau in (0.05, 0.3, 3.0):
        progress(f"learning on the circle with τ = {tau:g}")
        views = [_on_the_circle(x, tau, seed, steps) for seed in seeds]  # the same weights and views for all τ
        each = [float(uniformity(z1)) for z1, _ in views]
        spread.append(sum(each) / starts)
        rows.append((tau, spread[-1], sum(float(alignment(z1, z2)) for z1, z2 in views) / starts))
        z, _ = views[0]
        lines = [Line(f"cluster {c + 1}", z[c::4, 0].tolist(), z[c::4, 1].tolist(), "cloud") for c in range(4)]
        clouds.append(Panel(f"learned with τ = {tau:g}", "", "", lines))
    least = polygon_uniformity(n)
    first, last = spread[0], spread[-1]
    claims = [
        Claim(f"uniformity of {n} points on the circle, least", "≥", least, min(spread), 1e-5, kind="identity"),
        Claim("uniformity learned with τ = 0.05: near the least there is", "≤", least + 0.1, first, kind="ours"),
        Claim("uniformity learned with τ = 3: above that with τ = 0.05", "≥", first + 0.05, last, kind="ours"),
    ]
    title = f"learned on the circle, {starts} starts (the least uniformity there is: {least:.3f})"
    return claims, Table(title, ("τ", "uniformity", "alignment"), rows), clouds


def _on_the_circle(x: torch.Tensor, tau: float, seed: int, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two views of x, (n, 2) unit rows each, by an encoder that was trained on such views."""
    own = torch.Generator().manual_seed(seed)
    encoder = mlp([x.shape[1], 64, 2], own)

    def views() -> tuple[torch.Tensor, torch.Tensor]:
        first, second = 0.2 * torch.randn(2, *x.shape, generator=own)
        return encoder(x + first), encoder(x + second)

    minimize(lambda: nt_xent(*views(), temperature=tau), list(encoder.parameters()), steps=steps, lr=1e-2)
    with torch.no_grad():
        z1, z2 = (torch.nn.functional.normalize(z, dim=1) for z in views())
    return z1, z2


def _off(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())
