"""What a run on sentences chooses by itself."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nearfar.config import completed
from nearfar.methods import known_method
from nearfar.modalities.automatic import Request
from nearfar.modalities.text.automatic import TextFacts, choose
from nearfar.weights.packages import is_installed


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(f"sentence number {i}" for i in range(600)))
    return path


def settings(data: Path, **given: Any) -> dict[str, Any]:
    return completed({"data": str(data), "method": "simcse", "device": "cpu", **given})


@pytest.mark.parametrize(  # the table of docs/automatic.md
    ("device", "count", "paired", "backbone", "batch", "steps"),
    [
        ("cpu", 20_000, False, "text-bag", 256, 500),
        ("cpu", 200, False, "text-bag", 64, 500),
        ("cuda", 20_000, True, "text-bag", 256, 500),
        ("cuda", 2_000_000, False, "text-small", None, None),
    ],
)
def test_typical_situations(
    device: str, count: int, paired: bool, backbone: str, batch: int | None, steps: int | None
) -> None:
    class OnDevice(Request):
        @property
        def device(self) -> torch.device:
            return torch.device(device)

    found = choose(OnDevice({}, known_method("simcse")), TextFacts(count, paired)).settings
    assert (found["backbone"], found.get("batch_size"), found.get("steps")) == (backbone, batch, steps)


def test_few_sentences_get_a_bag_of_tokens(sentences: Path) -> None:
    chosen = settings(sentences)
    assert (chosen["backbone"], chosen["text"]["dropout"], chosen["batch_size"]) == ("text-bag", 0.5, 256)
    assert chosen["text"]["encoder"] == "text-bag"
    assert chosen["options"] == {"temperature": 0.1}
    assert (chosen["steps"], chosen["embedding"]) == (500, "plain")
    assert any("text-bag" in note for note in chosen["notes"])


def test_what_the_user_says_wins(sentences: Path) -> None:
    assert "steps" not in settings(sentences, epochs=2)
    assert settings(sentences, text={"dropout": 0.2})["text"]["dropout"] == 0.2
    assert settings(sentences, options={"temperature": 0.05})["options"] == {"temperature": 0.05}
    named = settings(sentences, backbone="text-micro")
    assert (named["backbone"], named["batch_size"]) == ("text-micro", 64)
    assert "dropout" not in named["text"]
    assert "steps" not in settings(sentences, recipe="paper")
    assert settings(sentences, options={"warmup": 0.1})["backbone"] == "text-tiny"  # masked words need a Transformer


def test_pairs_are_views_of_each_other_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("text,positive\n" + "\n".join(f"question {i},answer {i}" for i in range(40)))
    chosen = settings(path)
    assert chosen["backbone"] == "text-bag"
    assert "dropout" not in chosen["text"]
    assert chosen["batch_size"] == 16


def test_pairs_with_a_score_choose_their_embedding(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("s1,s2,score\n" + "\n".join(f"text {i},other {i},{i % 5}" for i in range(40)))
    chosen = settings(path)
    assert "embedding" not in chosen
    assert chosen["text"]["dropout"] == 0.5  # each is a sentence of its own


def test_what_cannot_be_read_is_told_by_the_run(tmp_path: Path) -> None:
    assert settings(tmp_path / "missing.txt")["backbone"] == "text-tiny"


@pytest.mark.skipif(not is_installed("minilm"), reason="needs the extra weights")
def test_runs_from_weights_take_small_steps_and_may_keep_their_start(sentences: Path, tmp_path: Path) -> None:
    for given in ({"weights": "package:minilm"}, {"text": {"weights": "package:minilm"}}):
        found = settings(sentences, **given)
        assert (found["optimizer"]["name"], found["optimizer"]["lr"]) == ("adamw", 2e-5)
        assert (found["adapt"]["keep"], found["embedding"]) == ("best", "plain")
        assert found["text"]["drop_words"] == 0.3
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("anchor,positive\n" + "\n".join(f"question {i},answer {i}" for i in range(60)))
    taught = settings(pairs, method="pairs", weights="package:minilm")
    assert taught["adapt"]["layer_decay"] == 0.75 and "keep" not in taught["adapt"]
    assert "drop_words" not in taught["text"] and "freeze_blocks" not in taught["adapt"]
    scored = tmp_path / "scored.csv"
    scored.write_text("s1,s2,score\n" + "\n".join(f"question {i},answer {i},{i % 5}" for i in range(60)))
    found = settings(scored, method="cosent", weights="package:minilm")
    assert (found["options"], found["optimizer"]["lr"], found["batch_size"]) == ({"temperature": 0.2}, 1e-4, 32)
    assert (found["text"]["dropout"], found["adapt"]["freeze_blocks"]) == (0.0, 3)
    asked = settings(scored, method="cosent", weights="package:minilm", options={"temperature": 0.05})
    assert asked["options"] == {"temperature": 0.05}
    assert "options" not in settings(scored, method="cosent", weights="package:minilm", recipe="paper")


@pytest.mark.skipif(not is_installed("minilm"), reason="needs the extra weights")
def test_english_sentences_start_from_weights_that_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Request, "has_package", lambda *_: True)
    english, german = tmp_path / "english.txt", tmp_path / "german.txt"
    english.write_text("how do i book a table\nthe children play in the garden\n" * 10, encoding="utf-8")
    german.write_text("Wie kann ich einen Tisch reservieren\nDie Kinder spielen im Garten\n" * 10, encoding="utf-8")
    found = settings(english)
    assert found["weights"] == "package:minilm" and found["backbone"].startswith("transformers:")
    assert (found["optimizer"]["lr"], found["embedding"], found["time"]) == (2e-5, "plain", "5m")
    assert settings(german)["backbone"] == "text-bag"
    assert settings(english, weights="none")["backbone"] == "text-bag"
    assert settings(english, options={"mlm": 0.1})["backbone"] == "text-tiny"
