"""Encoders of sequences: their frames, and that nothing behind the end of a sequence counts."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.nn.sequence import PRESETS, CPCEncoder, DilatedEncoder, pool_frames, sequence_encoder
from tests.support.facts import facts


def test_the_papers_frames() -> None:
    """20,480 samples at 16 kHz are 128 latents, one for each 10 ms (section 3.1)."""
    net = CPCEncoder()
    assert net.hop == 160 and net.width == 512 and net.num_features == 256
    convolutions = [m for m in net.convolutions if isinstance(m, nn.Conv1d)]
    assert [m.kernel_size[0] for m in convolutions] == [10, 8, 4, 4, 4]
    assert [m.stride[0] for m in convolutions] == [5, 4, 2, 2, 2]
    with torch.no_grad():
        z, present = sequence_encoder("cpc-16k-small").latents(torch.randn(1, 1, 20480))  # type: ignore[operator]
    assert z.shape == (1, 128, 128) and present.all()


def test_eight_kilohertz_have_frames_of_the_same_duration() -> None:
    assert sequence_encoder("cpc-8k").hop == 80 == sequence_encoder("cpc-16k").hop // 2  # type: ignore[operator]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset(name: str) -> None:
    torch.manual_seed(0)
    net = sequence_encoder(name, channels=3)
    assert net.hop >= 1 and callable(net.frames)  # type: ignore[operator]
    x = torch.randn(2, 3, 4 * net.hop + net.hop // 2)
    frames, present = net.frames(x)
    assert frames.shape[:2] == present.shape == (2, 4) and present.all()
    assert net(x).shape == (2, net.num_features)


@pytest.mark.parametrize("pooling", ["mean", "max", "both"])
@pytest.mark.parametrize("kind", ["cpc", "dilated"])
def test_what_is_behind_the_end_changes_nothing(kind: str, pooling: str) -> None:
    torch.manual_seed(0)
    net: nn.Module = (
        CPCEncoder(2, kernels=(5, 4, 3), strides=(2, 2, 1), width=6, context=5, pooling=pooling)  # type: ignore[arg-type]
        if kind == "cpc"
        else DilatedEncoder(2, width=6, depth=3, features=5, pooling=pooling)  # type: ignore[arg-type]
    )
    net = net.double().eval()
    lengths = [24, 17, 12, 5]
    x = torch.full((4, 2, 24), torch.nan, dtype=torch.float64)
    for row, length in enumerate(lengths):
        x[row, :, :length] = torch.randn(2, length, dtype=torch.float64)
    frames, present = net.frames(x)  # type: ignore[operator]
    for row, length in enumerate(lengths):
        alone, all_present = net.frames(x[row : row + 1, :, :length])  # type: ignore[operator]
        assert all_present.all() and int(present[row].sum()) == alone.shape[1] == length // net.hop  # type: ignore[operator]
        torch.testing.assert_close(frames[row, present[row]], alone[0])
        torch.testing.assert_close(net(x)[row], net(x[row : row + 1, :, :length])[0])


def test_a_missing_channel_is_zero_and_no_end() -> None:
    net = DilatedEncoder(2, width=4, depth=2, features=3)
    x = torch.randn(1, 2, 9)
    gone = x.clone()
    gone[:, 1] = torch.nan
    x[:, 1] = 0.0
    torch.testing.assert_close(net(gone), net(x))


def test_a_latent_is_convolutions_norm_and_relu() -> None:
    torch.manual_seed(0)
    net = CPCEncoder(1, kernels=(10,), strides=(5,), width=3, context=2).double()
    x = torch.randn(1, 1, 40, dtype=torch.float64)
    convolution, norm = net.convolutions[0], net.norms[0]
    assert isinstance(convolution, nn.Conv1d) and isinstance(norm, nn.LayerNorm)
    padded = F.pad(x[0, 0], (2, 3))
    expected = []
    for start in range(0, 40, 5):
        y = (convolution.weight[:, 0] * padded[start : start + 10]).sum(1) + convolution.bias
        expected.append(F.relu((y - y.mean()) / (y.var(correction=0) + norm.eps).sqrt()))
    torch.testing.assert_close(net.latents(x)[0][0], torch.stack(expected))


def test_the_encoder_of_cpc_audio_equals_its_loop() -> None:
    """Convolutions padded by 3, 2, 1, 1 and 1 on both sides, a norm by the unbiased variance, ReLU; then an LSTM."""
    torch.manual_seed(0)
    encoder = sequence_encoder("cpc-audio").double()
    x = torch.randn(2, 1, 1600, dtype=torch.float64)
    y = x
    for convolution, norm, padding in zip(encoder.convolutions, encoder.norms, (3, 2, 1, 1, 1), strict=True):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
        y = F.conv1d(y, convolution.weight, convolution.bias, stride=convolution.stride, padding=padding)
        mean, deviation = y.mean(1, keepdim=True), (y.var(1, keepdim=True, unbiased=True) + 1e-5).sqrt()
        y = F.relu((y - mean) / deviation * norm.weight[:, None] + norm.bias[:, None])
    z, _ = encoder.latents(x)
    torch.testing.assert_close(z, y.transpose(1, 2))
    assert z.shape == (2, 10, 256) and isinstance(encoder.recurrent, nn.LSTM)
    assert encoder.contexts(z).shape == (2, 10, 256)


def test_the_recurrence_is_a_gru() -> None:
    """c_t by the equations of the cell, step by step."""
    torch.manual_seed(0)
    net = CPCEncoder(1, kernels=(1,), strides=(1,), width=3, context=4).double()
    z, cell = torch.randn(1, 6, 3, dtype=torch.float64), net.recurrent
    c, states = torch.zeros(4, dtype=torch.float64), []
    for x in z[0]:
        r_x, u_x, n_x = (cell.weight_ih_l0 @ x + cell.bias_ih_l0).chunk(3)
        r_c, u_c, n_c = (cell.weight_hh_l0 @ c + cell.bias_hh_l0).chunk(3)
        update = (u_x + u_c).sigmoid()
        c = (1 - update) * (n_x + (r_x + r_c).sigmoid() * n_c).tanh() + update * c
        states.append(c)
    torch.testing.assert_close(net.contexts(z)[0], torch.stack(states))


def test_pooling_by_hand() -> None:
    frames = torch.tensor([[[1.0, -2.0], [3.0, -4.0], [100.0, 100.0]]])
    present = torch.tensor([[True, True, False]])
    assert pool_frames(frames, present, "mean").tolist() == [[2.0, -3.0]]
    assert pool_frames(frames, present, "max").tolist() == [[3.0, -2.0]]
    assert pool_frames(frames, present, "both").tolist() == [[2.0, -3.0, 3.0, -2.0]]


def test_gradients_of_padded_batches_are_finite() -> None:
    x = torch.randn(2, 1, 16)
    x[1, :, 3:] = torch.nan
    for net in (sequence_encoder("cpc-series"), sequence_encoder("dilated-small")):
        net(x).sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (torch.zeros(2, 5), "floating"),
        (torch.zeros(2, 1, 5, dtype=torch.int16), "int16"),
        (torch.zeros(2, 1, 3), "3 4"),
    ],
)
def test_wrong_input_is_named(given: Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=facts(words)):
        sequence_encoder("cpc-series")(given)


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(ValueError, match=facts("'cpc-series'")):
        sequence_encoder("cpc-serie")
    with pytest.raises(ValueError, match=facts("kernel stride")):
        CPCEncoder(kernels=(2,), strides=(3,))
