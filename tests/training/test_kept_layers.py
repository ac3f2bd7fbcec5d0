"""SimCLR v2 keeps the first layer of its head: it is the end of the encoder for everything that reads one."""

from pathlib import Path

import pytest
import torch
from torch import nn

import nearfar
from nearfar.config import TrainConfig, build, completed
from nearfar.methods import SimCLR, SimCLRV2
from nearfar.methods.toy import ToyImageEncoder, toy_batch
from nearfar.model.export.export import export
from nearfar.nn.heads import EncoderWithHead
from nearfar.training.build_method import build_method, untrained_encoder
from nearfar.training.run import Run
from tests.support.facts import facts
from tests.training.runs import QUIET, config

OPTIONS = {"kept_layers": 1, "dim": 8}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = Run(
        config("simclr_v2", options=OPTIONS), tmp_path_factory.mktemp("runs") / "run", resume=False, console=QUIET
    )
    made.execute()
    return made


def images(batch: int) -> torch.Tensor:
    return torch.randn(batch, 3, 16, 16, generator=torch.Generator().manual_seed(batch))


def test_training_is_that_of_a_head_of_three_layers() -> None:
    torch.manual_seed(0)
    whole = SimCLRV2(ToyImageEncoder(0.0), features=16, dim=8)
    kept = SimCLRV2(ToyImageEncoder(0.0), features=16, dim=8, kept_layers=1)
    kept.encoder.backbone.load_state_dict(whole.encoder.state_dict())
    kept.encoder.head.load_state_dict(whole.projector[:3].state_dict())
    rest = {f"{int(key[0]) - 3}{key[1:]}": x for key, x in whole.projector.state_dict().items() if int(key[0]) > 2}
    kept.projector.load_state_dict(rest)
    losses = []
    for method in (whole.double(), kept.double()):
        loss = method(toy_batch()).loss
        loss.backward()
        losses.append(loss)
    assert torch.equal(*losses)
    assert torch.equal(whole.projector[0].weight.grad, kept.encoder.head[0].weight.grad)


def test_it_is_what_the_paper_has() -> None:
    assert (
        build(TrainConfig, completed({"data": "photos", "method": "simclr_v2", "recipe": "paper"}), "train").options[
            "kept_layers"
        ]
        == 1
    )
    assert "kept_layers" not in SimCLR.paper["options"] and SimCLRV2.options()["kept_layers"] == 0


def test_a_finished_run_loads_and_encodes_with_it(run: Run) -> None:
    encoder = nearfar.load(run.folder)
    trained = run.setup.method.encoder
    assert isinstance(trained, EncoderWithHead) and isinstance(encoder.backbone, EncoderWithHead)
    features = encoder.features(images(3))
    assert features.shape == (3, encoder.num_features) and bool((features >= 0).all())  # after its ReLU
    torch.testing.assert_close(features, trained.cpu().eval()(images(3)))  # another memory layout
    untrained = nearfar.load(run.folder, untrained=True)
    drawn = build_method(run.setup.config, 80, untrained=True).encoder
    for other in (untrained.backbone, untrained_encoder(run.setup.config)):
        assert all(torch.equal(x, other.state_dict()[key]) for key, x in drawn.state_dict().items())


@pytest.mark.parametrize("format", ["nearfar", "huggingface", "onnx", "torchscript"])
def test_exports_have_it(run: Run, format: str, tmp_path: Path) -> None:  # noqa: A002
    done = export(run.folder, format, tmp_path / "out")
    if done.difference is None:
        assert torch.equal(nearfar.load(done.path)(images(2)), nearfar.load(run.folder)(images(2)))
    else:
        assert done.difference < 1e-4


def test_timm_has_no_place_for_it(tmp_path: Path, train_only: None) -> None:
    Run(
        config("simclr", options=OPTIONS, backbone="resnet10t", epochs=1), tmp_path / "run", resume=False, console=QUIET
    ).execute()
    with pytest.raises(ValueError, match=facts("kept_layers onnx")):
        export(tmp_path / "run", "timm")


@pytest.mark.parametrize(("options", "seen"), [({"kept_layers": 2}, "kept_layers 2"), ({"kept_layers": -1}, "-1"),
    ({"kept_layers": 0.5}, "kept_layers 0.5"), ({"kept_layers": 1, "layers": 1}, "1 layers")])  # fmt: skip
def test_bad_numbers(options: dict[str, float], seen: str) -> None:
    with pytest.raises(ValueError, match=facts(seen)):
        SimCLR(nn.Linear(3, 4), features=4, **options)  # type: ignore[arg-type]
