"""On two processes each adapter gives what its library gives: the value, and the gradient before DDP's average."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.distributed.processes import run_in_processes
from tests.adapters.shared import LIGHTLY, MODES, ROWS, SIGLIP, WORLD, everyone, measured
from tests.support.facts import tells


def test_adapters_on_two_processes_by_their_definitions() -> None:
    """Against dense matrices of all rows on one process; against the libraries themselves it is slow."""
    found = run_in_processes(WORLD, measured, False)
    for name in (*LIGHTLY, *MODES, *(f"siglip, {way}" for way in SIGLIP)):
        for seen, expected in zip(found, defined(name), strict=True):
            for a, b in zip(seen[name], expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11, msg=name)
    assert tells(found[0]["refused"][0], "gather_distributed True")


@pytest.mark.slow  # each process imports the libraries
def test_adapters_on_two_processes_by_their_libraries() -> None:
    pytest.importorskip("lightly")
    pytest.importorskip("open_clip")
    for ours, theirs in zip(
        run_in_processes(WORLD, measured, False), run_in_processes(WORLD, measured, True), strict=True
    ):
        for name in theirs.keys() - {"refused"}:
            for a, b in zip(ours[name], theirs[name], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11, msg=name)


def defined(name: str) -> list[list[Tensor]]:
    """Of each process: value, gradients of its rows, and of scale and bias on average."""
    if name in MODES:
        return _clip(*MODES[name])
    rows_of = {"NTXentLoss": 0.5, "DCLLoss": 0.1, "DCLWLoss": 0.1}
    whole = [x.requires_grad_() for x in everyone()]
    scale, bias = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (5.0, -2.0))
    if name == "VICRegLoss":
        values = _vicreg(*whole)
    elif name in rows_of:
        values = _two_views(*whole, name, rows_of[name])
    else:
        logits = scale * whole[0] @ whole[1].T + bias
        sign = 2 * torch.eye(len(logits)) - 1
        values = list((-F.logsigmoid(sign * logits)).sum(1).view(WORLD, ROWS).mean(1))
    slopes = torch.autograd.grad(sum(values), (*whole, scale, bias), materialize_grads=True)  # type: ignore[arg-type]
    return _of_each(values, slopes)


def _of_each(values: list[Tensor], slopes: tuple[Tensor, ...]) -> list[list[Tensor]]:
    a, b = (x.view(WORLD, ROWS, -1) for x in slopes[:2])
    return [[values[r].detach(), a[r], b[r], *(x / WORLD for x in slopes[2:])] for r in range(WORLD)]


def _two_views(z1: Tensor, z2: Tensor, name: str, temperature: float) -> list[Tensor]:
    z, n = F.normalize(torch.cat([z1, z2])), len(z1)
    s = z @ z.T / temperature
    near = s[torch.arange(2 * n), torch.arange(2 * n).roll(n)]
    if name == "NTXentLoss":
        rows = s.masked_fill(torch.eye(2 * n).bool(), -torch.inf).logsumexp(1) - near
    else:
        own = torch.arange(n).repeat(2)
        weight = torch.ones(2 * n)
        if name == "DCLWLoss":
            parts = (F.cosine_similarity(z1, z2).detach() / 0.5).view(WORLD, ROWS).softmax(1)
            weight = (2 - ROWS * parts).view(-1).repeat(2)
        rows = s.masked_fill(own[:, None] == own, -torch.inf).logsumexp(1) - weight * near
    return list(rows.view(2, WORLD, ROWS).mean((0, 2)))


def _vicreg(a: Tensor, b: Tensor) -> list[Tensor]:
    spread = sum(F.relu(1 - (x.var(0) + 1e-4).sqrt()).mean() for x in (a, b)) / 2
    covary = sum((x.T.cov() - torch.diag(x.var(0))).square().sum() / x.shape[1] for x in (a, b))
    distance = (a - b).square().view(WORLD, -1).mean(1)
    return [25 * distance[r] + 25 * spread + covary for r in range(WORLD)]


def _clip(local: bool, with_grad: bool) -> list[list[Tensor]]:
    """By the four ways that open_clip has, each as it would be on one process that plays all of them."""
    values, of_scale, slopes = [], [], torch.zeros(2, WORLD * ROWS, 5, dtype=torch.float64)
    for rank in range(WORLD):
        a, b = (x.requires_grad_() for x in everyone())
        scale = torch.tensor(5.0, dtype=torch.float64, requires_grad=True)
        own = torch.arange(rank * ROWS, (rank + 1) * ROWS)
        elsewhere = torch.ones(WORLD * ROWS, 1).index_fill(0, own, 0 if not local else 1).bool()
        keys_a, keys_b = (x if with_grad else torch.where(elsewhere, x.detach(), x) for x in (a, b))
        if local:
            logits = scale * a[own] @ keys_b.T, scale * b[own] @ keys_a.T
        else:
            logits = scale * keys_a @ keys_b.T, scale * keys_b @ keys_a.T
        truth = own if local else torch.arange(WORLD * ROWS)
        value = sum(F.cross_entropy(x, truth) for x in logits) / 2
        *rows, slope = torch.autograd.grad(value, (a, b, scale))  # type: ignore[arg-type]
        slopes += torch.stack(rows)
        values.append(value)
        of_scale.append(slope)
    return _of_each(values, (slopes[0], slopes[1], torch.stack(of_scale).sum(), torch.zeros((), dtype=torch.float64)))  # type: ignore[arg-type]
