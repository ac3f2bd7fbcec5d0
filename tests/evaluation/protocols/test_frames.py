"""The linear readout of frames."""

import pytest
import torch
from torch import Tensor, nn

from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.evaluation.protocols.frames import FramesSettings
from nearfar.modalities.series.data import SeriesDataset
from tests.evaluation.bars import evaluate
from tests.support.facts import facts


class Told(nn.Module):
    """Frames that know the class, and behind the end of a series frames that lie."""

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
        present = ~x[:, 0].isnan()
        return torch.where(present, x[:, 0], -100 * x[:, :1, 0])[..., None].repeat(1, 1, 2), present

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0, :1].repeat(1, 2)


def series(seed: int) -> SeriesDataset:
    chance = torch.Generator().manual_seed(seed)
    labels = torch.arange(40) % 2
    values = (2.0 * labels - 1)[:, None, None] + 0.1 * torch.randn(40, 1, 12, generator=chance)
    values[::3, :, 5:] = torch.nan
    return SeriesDataset(values, labels=labels, classes=["low", "high"])


def test_frames_are_read_within_their_sample_alone() -> None:
    encoders = {"trained": Told(), "untrained": nn.Flatten()}
    found = evaluate(
        encoders, series(0), series(1), prepare=lambda x: x, protocols=["frames"],
        settings=ProtocolConfig(frames=FramesSettings(per_sample=3), bootstrap=20),
    )  # fmt: skip
    assert {row.encoder for row in found.rows} == {"trained"}  # the others have no frames
    assert found.value("trained", "frames", "accuracy, single frames") == 1.0
    assert found.value("trained", "frames", "accuracy, all frames") == 1.0


def test_chance_is_chance() -> None:
    class Blind(Told):
        def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
            values, present = super().frames(x)
            return torch.randn(values.shape, generator=torch.Generator().manual_seed(len(x))), present

    found = evaluate({"trained": Blind(), "untrained": nn.Flatten()}, series(0), series(1), prepare=lambda x: x,
                     protocols=["frames"])  # fmt: skip
    assert 0.2 < found.value("trained", "frames", "accuracy, single frames") < 0.8
    with pytest.raises(ValueError, match=facts("protocols.frames.per_sample 0")):
        ProtocolConfig(frames=FramesSettings(per_sample=0))
