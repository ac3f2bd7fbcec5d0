"""torch.compile without graph breaks and torch.export: value and gradients are those of eager code."""

import pytest
import torch
from torch import Tensor, nn

from nearfar.losses import nt_xent, reference, use_engine
from nearfar.losses.engine.backends import DenseBackend, use_backend
from tests.losses.agreement import assert_near, rows

QUICK = ("nt_xent", "symmetric_info_nce", "sigmoid_pairs", "batch_triplet")
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in reference.DEFINITIONS]


def value_and_all_gradients(loss: object, *inputs: Tensor) -> list[Tensor]:
    assert callable(loss)
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    value = loss(*leaves)
    return [value.detach(), *torch.autograd.grad(value, leaves, materialize_grads=True)]


@pytest.mark.parametrize("name", NAMES)
def test_one_graph_gives_what_eager_gives_at_any_batch_size(name: str) -> None:
    definition = reference.DEFINITIONS[name]
    torch._dynamo.reset()

    def loss(a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        return definition.call(definition.loss, a, b, t)

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for size in (12, 16, 21):
            inputs = *rows(2, size, 8, dtype=torch.float32).unbind(), torch.tensor(0.3)
            pairs = zip(value_and_all_gradients(compiled, *inputs), value_and_all_gradients(loss, *inputs), strict=True)
            for a, b in pairs:
                assert_near(a, b, 1e-5)


def test_a_number_of_a_temperature_and_ids_are_traced_too() -> None:
    torch._dynamo.reset()
    z1, z2 = rows(2, 6, 4).unbind()
    ids = torch.tensor([0, 1, 2, 2, 3, 0])
    compiled = torch.compile(nt_xent, backend="aot_eager", fullgraph=True)
    assert_near(compiled(z1, z2, temperature=0.2, ids=ids), nt_xent(z1, z2, temperature=0.2, ids=ids), 1e-12)
    with use_backend(DenseBackend()):
        assert_near(compiled(z1, z2, temperature=0.2, ids=ids), nt_xent(z1, z2, temperature=0.2, ids=ids), 1e-12)


QUERY, KEYS = (rows(n, 4, seed=n, dtype=torch.float32).requires_grad_() for n in (6, 5))
SCALE, BIAS = (torch.tensor(x, requires_grad=True) for x in (1.3, 0.2))
IDS = torch.tensor([0, 1, 2, 3, 1, 0]), torch.tensor([0, 4, 1, 1, 7])
HOW = (None, "auto", "exact", None)
OPERATORS = {
    "log_sums, two ways": ("log_sums", (QUERY, KEYS, SCALE, 1.0, None, 0.0, *IDS, *[None] * 3, False, True, *HOW)),
    "log_sums, rows with themselves": (
        "log_sums",
        (QUERY, None, None, 2.0, None, 0.0, IDS[0], IDS[0].clone(), *[None] * 3, True, False, *HOW),
    ),
    "softplus_sums": ("softplus_sums", (QUERY, KEYS, SCALE, 1.0, BIAS, 0.0, *IDS, *[None] * 3, False, False, *HOW)),
    "top_k": ("top_k", (QUERY.detach(), KEYS.detach(), 2, *IDS)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_pass_torchs_own_check(name: str) -> None:
    operator, arguments = OPERATORS[name]
    torch.library.opcheck(getattr(torch.ops.nearfar, operator).default, arguments)


def test_an_engine_chosen_later_is_heard() -> None:
    torch._dynamo.reset()
    z1, z2 = rows(2, 300, 8, dtype=torch.float32).unbind()
    compiled = torch.compile(lambda a, b: nt_xent(a, b, temperature=0.1), backend="aot_eager", fullgraph=True)
    exact = compiled(z1, z2)
    with use_engine(precision="bf16"):
        assert 1e-7 < abs(compiled(z1, z2) / exact - 1) < 1e-2
    assert torch.equal(compiled(z1, z2), exact)


class WithLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(5, 3)
        self.log_temperature = nn.Parameter(torch.tensor(-1.0))

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return nt_xent(self.encoder(x1), self.encoder(x2), temperature=self.log_temperature.exp())


def test_a_module_with_a_loss_is_exported_with_a_free_batch_size() -> None:
    model = WithLoss()
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(
        model, (torch.randn(4, 5), torch.randn(4, 5)), dynamic_shapes=({0: batch}, {0: batch})
    )
    x1, x2 = rows(2, 9, 5, dtype=torch.float32).unbind()
    assert_near(program.module()(x1, x2), model(x1, x2), 1e-6)
    assert any("nearfar.log_sums" in str(node.target) for node in program.graph.nodes)


@pytest.mark.parametrize("name", NAMES)
def test_every_loss_is_exported_for_any_batch_size(name: str) -> None:
    definition = reference.DEFINITIONS[name]

    class Loss(nn.Module):
        def forward(self, a: Tensor, b: Tensor, t: Tensor) -> Tensor:
            return definition.call(definition.loss, a, b, t)

    batch = torch.export.Dim("batch", min=4)
    sizes = ({0: batch}, {0: batch}, None)
    example = *rows(2, 12, 8, dtype=torch.float32).unbind(), torch.tensor(0.2)
    program = torch.export.export(Loss(), example, dynamic_shapes=sizes)
    inputs = *rows(2, 17, 8, seed=1, dtype=torch.float32).unbind(), torch.tensor(0.3)
    assert_near(program.module()(*inputs), definition.call(definition.loss, *inputs), 1e-5)
