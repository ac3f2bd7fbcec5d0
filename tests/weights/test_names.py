from pathlib import Path

import pytest

from nearfar.weights.names import parse_name
from nearfar.weights.packages import PACKAGES, is_installed, package_path
from tests.support.facts import facts


def test_a_folder_is_a_run_or_as_another_library_writes_it(tmp_path: Path) -> None:
    assert parse_name(tmp_path).kind == "folder"
    (tmp_path / "config.json").touch()
    assert parse_name(tmp_path).kind == "hf"
    (tmp_path / "open_clip_config.json").touch()
    assert parse_name(tmp_path).kind == "open_clip"
    (tmp_path / "card.json").touch()  # an export in Hugging Face's layout has both
    assert parse_name(tmp_path).kind == "folder"


def test_names_are_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    Path("x.pt").touch()
    assert str(parse_name("hf:model").absolute()) == f"hf:{tmp_path / 'model'}"
    assert str(parse_name("hf:user/name").absolute()) == "hf:user/name"
    assert str(parse_name("timm:resnet18=x.pt").absolute()) == f"timm:resnet18={tmp_path / 'x.pt'}"
    assert str(parse_name("x.pt").absolute()) == str(tmp_path / "x.pt")
    assert parse_name("timm:resnet18").is_published and not parse_name("timm:resnet18=x.pt").is_published


@pytest.mark.parametrize(
    ("spec", "said"),
    [("tim:resnet18", "'tim' 'timm'"), ("timm:", "timm:NAME"), ("timm:a=", "=FILE"), ("no/such", "no/such")],
)
def test_a_wrong_name_is_one_line(spec: str, said: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=facts(said)) as error:
        parse_name(spec)
    assert "\n" not in str(error.value)


def test_packages_say_how_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=facts("minilmm 'minilm'")):
        package_path("minilmm")
    monkeypatch.setattr("nearfar.weights.packages.find_spec", lambda name: None)
    for name, package in PACKAGES.items():
        assert not is_installed(name) and package.licence
        with pytest.raises(ImportError, match=facts(f"{package.distribution} 'nearfar[weights]'")):
            package_path(name)
