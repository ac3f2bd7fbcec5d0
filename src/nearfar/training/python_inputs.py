"""What a caller of `nearfar.train` gives as Python objects, as the texts of a configuration."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from nearfar.config import TrainConfig
from nearfar.data.config import DataConfig
from nearfar.data.python_data import DataSpec, as_data, object_data, tell_notes
from nearfar.data.python_parts import named_parts
from nearfar.methods import METHODS, Method, known_method, use_class
from nearfar.modalities import MODALITIES, modality_class
from nearfar.modalities.image.views.custom_views import CustomViews
from nearfar.plugins import describe
from nearfar.python_objects import is_object, register, register_as
from nearfar.settings import as_section
from nearfar.training.attachments import Attachments


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
    return named_parts(data)


def _modality(spec: DataSpec, given: Mapping[str, Any]) -> str | None:
    """The modality of listed files or texts, if the method serves it; None: found out as for any other data."""
    if spec.suffix is None:
        return None
    served = known_method(str(given.get("method") or TrainConfig.method)).modalities
    kinds = [name for name in MODALITIES if name in served]
    if spec.suffix == "":
        return next((name for name in kinds if modality_class(name).queries == ("text",)), None)
    return next((name for name in kinds if spec.suffix in modality_class(name).suffixes), None)


def method_settings(method: Any, encoder: Any) -> dict[str, Any]:
    """The settings that a method and an encoder stand for, each given by name or as an object.

    Args:
        method: a name, a class that inherits from `Method`, or an instance with its own encoder.
        encoder: a name of a backbone, or a network.
    """
    found: dict[str, Any] = {}
    if isinstance(method, Method):
        if encoder is not None:
            raise ValueError("encoder and a method with its own encoder were given, expected one of them")
        encoder = method.encoder
    if method is not None:
        found["method"] = method if isinstance(method, str) else _method_name(method)
    if isinstance(encoder, str):
        found["backbone"] = encoder
    elif isinstance(encoder, nn.Module):
        found["backbone"] = register(encoder, type(encoder).__name__)
    elif encoder is not None:
        raise TypeError(f"encoder is a {type(encoder).__name__}, expected a torch.nn.Module or the name of a backbone")
    return found


def _method_name(method: Any) -> str:
    """How a configuration names a method that is an object: MODULE:NAME, if a file has its class."""
    kind = method if isinstance(method, type) else type(method)
    if not issubclass(kind, Method):
        raise TypeError(f"method is {describe(method)}, expected a name, or a class or instance of nearfar's Method")
    if isinstance(method, type):
        if METHODS.get(kind.name) is kind:
            return kind.name
        module = sys.modules.get(kind.__module__)
        if kind.__module__ != "__main__" and getattr(module, kind.__qualname__, None) is kind:
            return f"{kind.__module__}:{kind.__qualname__}"
    spec = register(method, kind.__name__)
    use_class(method, spec)
    return spec


def view_settings(views: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that views stand for: a preset, keys of `ViewsConfig`, or a callable, which is tried out once."""
    section = dict(views) if isinstance(views, Mapping) else {"preset": views}
    made = section.get("preset")
    if made is None or isinstance(made, str):
        return {} if views is None else {"views": views}
    own = made if isinstance(made, CustomViews) else CustomViews(made)
    own.probe()
    first = own.transforms[0]
    section["preset"] = register(own, getattr(first, "__name__", type(first).__name__).strip("<>"))
    if own.count is not None:
        section.setdefault("count", own.count)
    size = {} if own.size is None or "image_size" in given else {"image_size": own.size}
    return {"views": section, **size}


def check_objects(config: TrainConfig) -> None:
    """Refuse a network or a callable of the user's own where the modality has no use for one."""
    modality = modality_class(config.kind)
    for key, spec in (("encoder", config.backbone), ("views", config.views.preset)):
        if is_object(spec) and key not in modality.takes_objects:
            raise ValueError(f"{key} is an object, and {modality.noun} take {key} by name alone")


def give_again(
    config: TrainConfig, folder: Path, *, data: Any, method: Any = None, encoder: Any = None, views: Any = None
) -> None:
    """Let the names of a run stand for the objects that the caller of a resumed run gave.

    Whether data hold the same samples is checked when they are opened, by the fingerprint in the checkpoint.
    """
    if data is not None:
        _give_data_again(config, data, folder)
    if isinstance(method, Method):
        encoder = method.encoder if encoder is None else encoder
    given = (
        ("method", method, config.method),
        ("encoder", encoder, config.backbone),
        ("views", views, config.views.preset),
    )
    for key, value, spec in given:
        if value is None:
            continue
        if spec is None or not is_object(spec) or isinstance(value, str | Mapping):
            raise ValueError(
                f"{key} was given with resume, and the run in {folder} has its own, {spec!r}: leave it out"
            )
        register_as(spec, CustomViews(value) if key == "views" and not isinstance(value, CustomViews) else value)
        if key == "method":
            use_class(value, spec)


def _give_data_again(config: TrainConfig, data: Any, folder: Path) -> None:
    for key, value in data_section(data).items():
        spec = getattr(config.data, key, None)
        if is_object(spec):
            register_as(str(spec), object_data(value))
        elif key not in ("path", "test") or as_data(value, relative=key == "path").path != spec:
            raise ValueError(
                f"data.{key} was given with resume and is not what the run in {folder} has, {spec!r}; leave it out, or "
                "give the same"
            )


def unstored(config: TrainConfig, attachments: Attachments | None = None) -> list[str]:
    """A line for each object that the run folder cannot hold."""
    held = {
        "data": config.data.path,
        "data.test": config.data.test,
        "method": config.method,
        "encoder": config.backbone,
        "views": config.views.preset,
    }
    attached = {} if attachments is None else attachments.names()
    return [
        f"{key} is {spec}, an object of this program that the run folder cannot hold: give it again to resume"
        + (", and to load the trained encoder elsewhere" if key == "encoder" else "")
        for key, spec in held.items()
        if is_object(spec)
    ] + [
        f"{key} {', '.join(names)}: the run folder cannot hold them; give them again to resume"
        for key, names in attached.items()
    ]
