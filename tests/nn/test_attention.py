import pytest
import torch
from torch import Tensor, nn

from nearfar.nn.attention import SelfAttention, Transformer
from tests.support.facts import facts

B, L, D, H = 3, 5, 12, 4
PADDING = torch.tensor([[False] * 5, [False, False, False, True, True], [False, True, True, True, True]])


def rows(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, L, D, dtype=torch.float64, generator=generator).requires_grad_()


def ours_and_torchs(causal: bool) -> tuple[SelfAttention, nn.MultiheadAttention]:
    """With the same weights."""
    torch.manual_seed(0)
    ours = SelfAttention(D, H, causal=causal).double()
    torchs = nn.MultiheadAttention(D, H, batch_first=True).double()
    torchs.load_state_dict(
        {
            "in_proj_weight": ours.qkv.weight,
            "in_proj_bias": ours.qkv.bias,
            "out_proj.weight": ours.out.weight,
            "out_proj.bias": ours.out.bias,
        }
    )
    return ours, torchs


@pytest.mark.parametrize("padding", [None, PADDING])
@pytest.mark.parametrize("causal", [False, True])
def test_equals_torchs_in_value_weights_and_gradient(causal: bool, padding: Tensor | None) -> None:
    ours, torchs = ours_and_torchs(causal)
    x, same_x = rows(), rows()
    mask = torch.ones(L, L, dtype=torch.bool).triu(1) if causal else None
    expected, expected_weights = torchs(
        same_x, same_x, same_x, key_padding_mask=padding, attn_mask=mask, average_attn_weights=False
    )
    y = ours(x, padding)
    slow, weights = ours.forward_with_weights(x, padding)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(slow, expected)
    torch.testing.assert_close(weights, expected_weights)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, L, dtype=torch.float64))

    direction = rows(1).detach()
    (expected * direction).sum().backward()
    for way in (y, slow):
        x.grad = ours.qkv.weight.grad = ours.out.weight.grad = None
        (way * direction).sum().backward(retain_graph=True)
        torch.testing.assert_close(x.grad, same_x.grad)
        torch.testing.assert_close(ours.qkv.weight.grad, torchs.in_proj_weight.grad)
        torch.testing.assert_close(ours.out.weight.grad, torchs.out_proj.weight.grad)


@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_nothing_but_padding_give_no_nan(causal: bool) -> None:
    transformer = Transformer(D, layers=2, heads=H, causal=causal).double()
    padding = PADDING.clone()
    padding[1] = True
    padding[2] = torch.tensor([True, True, False, False, False])  # before the text: causal places see nothing
    x = rows()
    for y in (transformer(x, padding), transformer.forward_with_weights(x, padding)[0]):
        assert y.isfinite().all()
        (gradient,) = torch.autograd.grad(y.square().sum(), x)
        assert gradient.isfinite().all()
    weights = transformer.forward_with_weights(x, padding)[1]
    assert (weights[1] == 0).all()
    sums = weights.sum(-1)  # (B, layers, H, L)
    torch.testing.assert_close(sums[0], torch.ones_like(sums[0]))
    torch.testing.assert_close(
        sums[2], (~padding[2]).to(sums).expand_as(sums[2]) if causal else torch.ones_like(sums[2])
    )


@pytest.mark.parametrize("padding", [None, PADDING])
@pytest.mark.parametrize("causal", [False, True])
def test_weights_come_with_the_same_output(causal: bool, padding: Tensor | None) -> None:
    transformer = Transformer(D, layers=3, heads=H, causal=causal).double()
    x = rows()
    y, weights = transformer.forward_with_weights(x, padding)
    torch.testing.assert_close(y, transformer(x, padding))
    assert weights.shape == (B, 3, H, L, L)
    if causal:
        assert (weights.triu(1) == 0).all()
    if padding is not None:
        assert (weights[2, ..., 1:] == 0).all()


def test_a_causal_place_does_not_know_what_follows() -> None:
    transformer = Transformer(D, layers=2, heads=H, causal=True).double()
    x = rows().detach()
    changed = torch.cat([x[:, :3], rows(1).detach()[:, 3:]], 1)
    torch.testing.assert_close(transformer(x)[:, :3], transformer(changed)[:, :3])
    assert not torch.allclose(transformer(x)[:, 3:], transformer(changed)[:, 3:])


def test_dropout_is_of_training_alone() -> None:
    transformer = Transformer(D, layers=2, heads=H, dropout=0.5).double()
    x = rows().detach()
    assert not torch.equal(transformer(x), transformer(x))
    transformer.eval()
    assert torch.equal(transformer(x), transformer(x))


def test_all_of_it_trains() -> None:
    transformer = Transformer(D, layers=2, heads=H).double()
    transformer(rows(), PADDING).square().sum().backward()
    assert all(p.grad is not None for p in transformer.parameters())


def test_bfloat16_autocast() -> None:
    transformer = Transformer(D, layers=2, heads=H, causal=True, dropout=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert transformer(rows().detach().float(), PADDING).isfinite().all()


def test_mistakes_are_told() -> None:
    with pytest.raises(ValueError, match=facts("width 10 heads 4")):
        SelfAttention(10, 4)
    with pytest.raises(ValueError, match=facts("layers 0")):
        Transformer(8, layers=0, heads=2)
    attention = SelfAttention(D, H)
    with pytest.raises(ValueError, match=facts("(B, L, 12)")):
        attention(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=facts("bool (2, 3)")):
        attention(torch.zeros(2, 3, D), torch.zeros(2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=facts("torch.int64 bool")):
        attention(torch.zeros(2, 3, D), torch.zeros(2, 3, dtype=torch.long))
