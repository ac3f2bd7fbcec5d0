"""Runs on sounds and series: seen, heard, searched by a recording, within limits."""

import io
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from nearfar.config import TrainConfig
from nearfar.explore.limits import Limits
from nearfar.explore.open_run import open_run
from nearfar.explore.serve import guarded_app
from nearfar.modalities.sound.config import SoundConfig
from nearfar.modalities.sound.files import decode_sound
from nearfar.model.load import load
from tests.support.facts import tells
from tests.support.models import save_untrained
from tests.support.sounds import RATE, recordings, tone

soundfile = pytest.importorskip("soundfile")
WAV = {"Content-Type": "audio/wav"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sounds")


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[TestClient]:
    data = recordings(place / "data", words=2, speakers=2, takes=2)
    config = TrainConfig(
        data=str(data),
        method="byol_a",
        backbone="audio-micro",
        sound=SoundConfig(sample_rate=RATE, max_seconds=0.25, crop_seconds=0.2),
    )
    run = open_run(str(save_untrained(config, place / "run")), load, progress=False)
    assert run.space is not None and run.space.encoder.modality.name == "sound"
    app = guarded_app([run], "127.0.0.1", limits=Limits(seconds=2.0))
    with TestClient(app, base_url="http://127.0.0.1:8642") as client:
        yield client


def recording(x: np.ndarray, rate: int = RATE, kind: str = "WAV") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, x, rate, format=kind)
    return file.getvalue()


def test_a_sound_is_heard_and_seen(client: TestClient, place: Path) -> None:
    told = client.get("/api/runs").json()["runs"][0]
    assert (told["kind"], told["uploads"], told["texts"], told["rows"]) == ("sound", "sound", False, 8)
    heard = client.get("/api/sound", params={"row": 3})
    name = client.get("/api/samples", params={"row": 3}).json()["samples"][0]["name"]
    with wave.open(io.BytesIO(heard.content)) as sound:
        assert (sound.getframerate(), sound.getnchannels()) == (RATE, 1)
        values = np.frombuffer(sound.readframes(sound.getnframes()), "<i2")
    assert np.array_equal(values, decode_sound(place / "data" / name, RATE).values[: RATE // 4])
    with Image.open(io.BytesIO(client.get("/api/thumbnail", params={"row": 3}).content)) as seen:
        assert np.asarray(seen).std() > 10  # a spectrogram, not an even gray


def test_a_recording_finds_itself(client: TestClient, place: Path) -> None:
    file = place / "data" / "1_bob_1.wav"
    found = client.post("/api/search", params={"k": 1}, content=file.read_bytes(), headers=WAV).json()["results"][0]
    assert found["name"] == "1_bob_1.wav" and found["similarity"] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (recording(tone(300, 3.0)), "3 2"),
        (recording(np.zeros(RATE, np.float32)), "silent"),
        (recording(tone(300))[:900], "cut"),
        (recording(tone(300), rate=999_999), "999,999 sound"),
        (b"", "empty"),
        (b"RIFF", "sound"),
        (bytes(1000), "sound"),
    ],
)
def test_what_is_no_sound_is_told(client: TestClient, content: bytes, told: str) -> None:
    answer = client.post("/api/search", content=content, headers=WAV)
    assert answer.status_code == 422 and tells(answer.json()["detail"], told), answer.text


def test_texts_and_pictures_are_not_for_sounds(client: TestClient) -> None:
    assert tells(client.post("/api/search", json={"text": "a"}).json()["detail"], "text")
    assert client.post("/api/search", content=b"x", headers={"Content-Type": "image/png"}).status_code == 415


def test_series_are_drawn(tmp_path: Path) -> None:
    config = TrainConfig(data="waves:40", modality="series", backbone="dilated-small")
    run = open_run(str(save_untrained(config, tmp_path / "run")), load, progress=False)
    assert run.space is not None and run.space.encoder.modality.name == "series"
    with TestClient(guarded_app([run], "127.0.0.1"), base_url="http://127.0.0.1:8642") as client:
        assert client.get("/api/runs").json()["runs"][0]["uploads"] is None
        with Image.open(io.BytesIO(client.get("/api/thumbnail", params={"row": 3}).content)) as seen:
            assert len(np.unique(np.asarray(seen))) > 1
        assert len(client.get("/api/neighbours", params={"row": 3}).json()["results"]) == 20
        refused = client.post("/api/search", content=b"x", headers=WAV)
        assert refused.status_code == 415 and tells(refused.json()["detail"], "application/json")
