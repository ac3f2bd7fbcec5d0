"""Models of `transformers` from a local folder, the hub's cache or the hub: JSON and safetensors, nothing that runs."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from nearfar.data.downloads import check_allowed, downloads_allowed
from nearfar.messages import one_line
from nearfar.safe_read import read_json
from nearfar.weights.allocation_limit import SLACK, AllocationLimit
from nearfar.weights.packages import package_path

TRANSFORMERS = "transformers:"  # before a folder or a name of the hub, as the name of a backbone
PACKAGE = "package:"
KEPT, KEPT_IMAGES, KEPT_SOUNDS = (
    "transformers",
    "transformers-images",
    "transformers-sounds",
)  # folders of a run, for models of transformers
CONFIG = "config.json"
LARGEST_FILE = 1 << 20  # bytes of a file of settings
_MOST_NUMBERS = 1 << 34  # of a network whose weights are not in a folder here

ModelKind = Literal["image", "text", "sound", "image-text"]
_INPUTS: dict[str, ModelKind] = {"pixel_values": "image", "input_ids": "text", "input_values": "sound"}


def local_place(source: str) -> Path:
    """The folder of a source: its own, or that of a package that carries it; of a name of the hub there is none."""
    if source.startswith(PACKAGE):
        return package_path(source.removeprefix(PACKAGE))
    here = Path(source).expanduser()
    if source.startswith(("/", "./", "../", "~")) and not here.exists():
        raise FileNotFoundError(f"there is no folder {source!r}, expected one as save_pretrained writes it")
    return here


def model_file(source: str, name: str) -> Path | None:
    """A file of a model, from its folder, the hub's cache or the hub; None if the model has no such file."""
    here = local_place(source)
    path: Path | None = here / name if here.is_dir() else _fetched(source, name)
    return path if path is not None and path.is_file() else None


def settings_file(source: str, name: str) -> dict[str, Any] | None:
    """A JSON file of a model; None if the model has no such file."""
    path = model_file(source, name)
    return None if path is None else read_settings(path)


def read_settings(path: Path) -> dict[str, Any]:
    """A JSON object of bearable size."""
    found = _read_json(path)
    if not isinstance(found, dict):
        fault = f"it holds a {type(found).__name__}"
        raise ValueError(f"{path} is not a settings file ({fault}), expected a JSON object")
    return found


def keep_config(backbone: str, folder: Path, name: str = KEPT) -> None:
    """Write the architecture of a model of transformers beside its weights: its own folder may be gone one day."""
    stated = settings_file(backbone.removeprefix(TRANSFORMERS), CONFIG) if backbone.startswith(TRANSFORMERS) else None
    if stated is not None:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / CONFIG).write_text(json.dumps(stated, indent=1), encoding="utf-8")


def kept_backbone(folder: Path, name: str = KEPT) -> str | None:
    """The backbone whose architecture `keep_config` wrote."""
    return f"{TRANSFORMERS}{(folder / name).absolute()}" if (folder / name / CONFIG).is_file() else None


def modules_of(source: str) -> list[dict[str, Any]]:
    """The rows of a modules.json, as sentence-transformers writes them; none if there is no such file."""
    here = local_place(source)
    path = here / "modules.json" if here.is_dir() else _fetched(source, "modules.json")
    found = _read_json(path) if path is not None and path.is_file() else []
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _read_json(path: Path) -> Any:
    try:
        return read_json(path, LARGEST_FILE)
    except ValueError as error:
        raise ValueError(f"{path} is not a settings file ({one_line(error)}), expected a JSON object") from None


def _fetched(source: str, name: str) -> Path | None:
    """A file of the hub, from its cache if it is there; None if the model has none."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError

    try:
        if isinstance(cached := try_to_load_from_cache(source, name), str):
            return Path(cached)
        if isinstance(try_to_load_from_cache(source, "config.json"), str):
            return None  # the model is cached, without this file
        check_allowed(f"the model {source!r}")
        with quiet_hub():
            return Path(hf_hub_download(source, name))
    except EntryNotFoundError:
        return None
    except (OSError, HFValidationError) as error:
        raise FileNotFoundError(
            f"{source!r} is not a folder here, and could not be fetched from the Hugging Face hub "
            f"({one_line(error, 100)})"
        ) from None


def model_kind(source: str) -> ModelKind:
    """What a model takes: by its class in `transformers`."""
    transformers = import_transformers(f"hf:{source}")
    here = local_place(source)
    if here.is_dir() and not (here / "config.json").is_file():
        raise FileNotFoundError(
            f"{here} holds no config.json, expected a folder as Hugging Face's save_pretrained writes"
        )
    config = _config(transformers, source)
    try:
        kind: Any = transformers.AutoModel._model_mapping[type(config)]
    except KeyError:
        stated = getattr(config, "model_type", None)
        raise ValueError(f"{source}: model_type is {stated!r}, which transformers' AutoModel cannot open") from None
    kind = kind[0] if isinstance(kind, tuple | list) else kind
    if hasattr(kind, "get_image_features") and hasattr(kind, "get_text_features"):
        return "image-text"
    found = _INPUTS.get(str(getattr(kind, "main_input_name", "")))
    if found is None or hasattr(kind, "get_audio_features"):
        raise ValueError(
            f"{source}: a {kind.__name__} takes {getattr(kind, 'main_input_name', 'other input')}, expected a model of "
            "images (pixel_values), texts (input_ids), waves (input_values), or of images and texts"
        )
    return found


def _config(transformers: Any, source: str) -> Any:
    place, options = _place(source)
    try:
        with quiet(transformers):
            return transformers.AutoConfig.from_pretrained(place, **options)
    except Exception as error:  # a broken file of any kind, each with an error of its own
        raise _cannot_load(source, error) from None


def open_model(source: str, *, pretrained: bool) -> nn.Module:
    """The model of a folder or a hub name, with its weights, or freshly drawn; on float32."""
    transformers = import_transformers(source)
    config = _config(transformers, source)
    place, options = _place(source)
    auto: Any = transformers.AutoModel
    try:
        with quiet(transformers), _limit_of(source):
            if not pretrained:
                drawn: nn.Module = auto.from_config(config, trust_remote_code=False)
                return drawn.float()
            network, found = auto.from_pretrained(
                place, use_safetensors=True, output_loading_info=True, dtype=torch.float32, **options
            )
    except Exception as error:
        raise _cannot_load(source, error, auto._model_mapping.get(type(config), None)) from None
    lacking = sorted(name for name in found["missing_keys"] if "pooler" not in name)  # poolers are not used
    if lacking:  # they would be drawn at random
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise ValueError(f"{source}: the weights lack {lacking[0]!r}{more}; get the model again")
    for name, x in network.state_dict().items():
        if x.is_floating_point() and not bool(x.isfinite().all()):
            raise ValueError(f"{source}: {name} has values that are not finite; get the weights again")
    found_network: nn.Module = network.float()
    return found_network


def _limit_of(source: str) -> AllocationLimit:
    """A folder may be anyone's: its settings name no network that is much larger than its weights."""
    size = sum(file.stat().st_size for file in local_place(source).glob("*.safetensors"))
    return AllocationLimit(4 * size + SLACK if size else _MOST_NUMBERS)


def _place(source: str) -> tuple[str, dict[str, Any]]:
    here = local_place(source)
    local = here.is_dir() or not downloads_allowed()
    return (str(here) if here.is_dir() else source), {"trust_remote_code": False, "local_files_only": local}


def _cannot_load(source: str, error: Exception, kind: Any = None) -> ValueError:
    what = f" as a {kind.__name__}" if isinstance(kind, type) else ""
    return ValueError(
        f"the model {source!r} could not be loaded{what} ({one_line(error)}); expected a folder with config.json and "
        "model.safetensors, or a name of the Hugging Face hub and a network"
    )


def import_transformers(what: str) -> Any:
    from nearfar import _torchvision  # noqa: F401, before transformers

    try:
        import transformers  # isort: skip
    except ImportError as error:
        raise ImportError(f"{what!r} needs transformers ({error}): pip install 'nearfar[text]'") from None
    return transformers


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """No bars and no warnings of the library, and no trace of weights that are drawn before they are read."""
    own = transformers.utils.logging
    level, bars = own.get_verbosity(), own.is_progress_bar_enabled()
    own.set_verbosity_error()
    own.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]), quiet_hub():
            yield
    finally:
        own.set_verbosity(level)
        if bars:
            own.enable_progress_bar()


@contextmanager
def quiet_hub() -> Iterator[None]:
    """No line for each new attempt to reach the hub: one line at the end says what failed."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(level)
