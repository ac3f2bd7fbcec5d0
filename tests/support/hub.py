"""A stand-in for the Hugging Face hub: a folder for each name, in place of the network."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import EntryNotFoundError

from nearfar.weights import hub


class RepositoryAddress(str):
    """What `create_repo` returns: an address that knows its name."""

    @property
    def repo_id(self) -> str:
        return str(self)


class Hub:
    """Stands for the network: a folder for each name."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def api(self, **_: Any) -> "Hub":
        return self

    def create_repo(self, repo_id: str, **_: Any) -> Any:
        return RepositoryAddress(repo_id)

    def upload_folder(self, *, repo_id: str, folder_path: Path, **_: Any) -> str:
        shutil.copytree(folder_path, self.place / repo_id, dirs_exist_ok=True)
        return f"https://hub/{repo_id}/commit/1"

    def file(self, name: str, file: str, **_: Any) -> str:
        if not (self.place / name).is_dir():
            raise OSError("404\nno such repository")
        if not (self.place / name / file).is_file():
            raise EntryNotFoundError(f"404: {file}")
        return str(self.place / name / file)

    def folder(self, name: str, **_: Any) -> str:
        return str(self.place / name)


def connect(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let uploads and downloads of huggingface_hub use folders below a place."""
    stand_in = Hub(place)
    for name in ("huggingface_hub.HfApi", "huggingface_hub.hub_mixin.HfApi"):
        monkeypatch.setattr(name, stand_in.api)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", stand_in.file)
    monkeypatch.setattr("huggingface_hub.snapshot_download", stand_in.folder)
    monkeypatch.setattr(hub, "_is_reachable", lambda: True)
    return place
