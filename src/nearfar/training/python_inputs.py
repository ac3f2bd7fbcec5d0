"""What a caller of `nearfar.train` gives as Python objects, as the texts of a configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearfar.config import TrainConfig
from nearfar.data.config import DataConfig
from nearfar.data.python_data import DataSpec, as_data, object_data, tell_notes
from nearfar.methods import known_method
from nearfar.modalities import MODALITIES, modality_class
from nearfar.python_objects import is_object, register_as
from nearfar.settings import as_section

TEST_PARTS = ("test", "validation", "valid", "val")


def data_settings(data: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that data stand for: the section "data", and the modality if the data tell it.

    Args:
        data: as `nearfar.train` takes them.
        given: other settings of the user.
    """
    section = data_section(data)
    specs = {}
    for key in ("path", "test"):
        if section.get(key) is not None:
            specs[key] = spec = as_data(section[key], relative=key == "path")
            tell_notes(spec)
            section[key] = spec.path
    if (root := specs["path"].root if "path" in specs else None) is not None:
        section.setdefault("root", root)
    kind = None if given.get("modality") is not None or "path" not in specs else _modality(specs["path"], given)
    return {"data": section, **({} if kind is None else {"modality": kind})}


def data_section(data: Any) -> dict[str, Any]:
    """The keys of `DataConfig`, their values perhaps objects; splits by name are data and test."""
    if isinstance(data, DataConfig | str | Path):
        return dict(as_section(DataConfig, str(data) if isinstance(data, Path) else data))
    if not isinstance(data, Mapping):
        return {"path": data}
    if "train" not in data:
        return dict(data)
    test = next((data[name] for name in TEST_PARTS if name in data), None)
    return {"path": data["train"], **({} if test is None else {"test": test})}


def _modality(spec: DataSpec, given: Mapping[str, Any]) -> str | None:
    """The modality of listed files or texts, if the method serves it; None: found out as for any other data."""
    if spec.suffix is None:
        return None
    served = known_method(str(given.get("method") or TrainConfig.method)).modalities
    kinds = [name for name in MODALITIES if name in served]
    if spec.suffix == "":
        return next((name for name in kinds if modality_class(name).queries == ("text",)), None)
    return next((name for name in kinds if spec.suffix in modality_class(name).suffixes), None)


def give_data_again(config: TrainConfig, data: Any, folder: Path) -> None:
    """Let the names of a run's data stand for the objects that the caller of a resumed run gave.

    Whether they hold the same samples is checked when they are opened, by the fingerprint in the checkpoint.
    """
    for key, value in data_section(data).items():
        spec = getattr(config.data, key, None)
        if is_object(spec):
            register_as(str(spec), object_data(value))
        elif key not in ("path", "test") or as_data(value, relative=key == "path").path != spec:
            raise ValueError(
                f"data.{key} was given with resume and is not what the run in {folder} has, {spec!r}; leave it out, or "
                "give the same"
            )


def unstored(config: TrainConfig) -> list[str]:
    """A line for each object that the run folder cannot hold."""
    held = {"data": config.data.path, "data.test": config.data.test}
    return [
        f"{key} is {spec}, an object of this program that the run folder cannot hold: give it again to resume, or to "
        "evaluate on it elsewhere"
        for key, spec in held.items()
        if is_object(spec)
    ]
