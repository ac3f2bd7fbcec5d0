"""Exports on the Hugging Face hub: fetched into its cache."""

import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from nearfar.messages import one_line
from nearfar.progress import print_note

CARD = "card.json"  # of every export
_UNUSED = ["*.bin", "*.ckpt", "*.h5", "*.msgpack", "*.onnx", "*.pkl", "*.pt", "*.pth", "*.py", "*.md"]  # nothing runs
_PATIENCE = 3.0  # seconds for the hub to be reached: its own client tries for half a minute


def download(
    name: str,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    force_download: bool = False,
    local_files_only: bool = False,
    token: str | bool | None = None,
) -> Path:
    """The folder of an export on the hub, as `nearfar export --push` uploads it; without a network from the cache.

    Args:
        name: user/name.
        revision: a branch, a tag or a commit; None: the newest.
        cache_dir: where the hub keeps its files; None: its own place.
        force_download: fetch again what is there.
        local_files_only: use the cache alone.
        token: of the hub; None: that of `hf auth login`.
    """
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import EntryNotFoundError

    from nearfar.weights.huggingface import quiet_hub

    local_files_only = local_files_only or not _is_reachable()
    if not local_files_only:
        print_note(f"looking for {name} on the Hugging Face hub")
    options: dict[str, Any] = {"revision": revision, "cache_dir": cache_dir, "token": token}
    options |= {"force_download": force_download, "local_files_only": local_files_only}
    try:
        with quiet_hub():
            hf_hub_download(name, CARD, **options)
            return Path(snapshot_download(name, ignore_patterns=_UNUSED, **options))
    except EntryNotFoundError as error:
        if "cache" in str(error):  # it was not asked, or cannot be reached
            raise _not_fetched(name, error) from None
        raise ValueError(
            f"{name!r} on the hub has no {CARD}, so nearfar did not export it; hf:{name} opens a model of transformers"
        ) from None
    except Exception as error:  # no network, no permission, no such name: each in its own way
        raise _not_fetched(name, error) from None


def _is_reachable() -> bool:
    """Whether the hub answers; behind a proxy that is left to its client."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    address = urlsplit(os.environ.get("HF_ENDPOINT") or constants.ENDPOINT)
    if getproxies().get(address.scheme):
        return True
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname or "", port), timeout=_PATIENCE).close()
    except OSError:
        return False
    return True


def _not_fetched(name: str, error: Exception) -> FileNotFoundError:
    return FileNotFoundError(
        f"{name!r} is not a folder here, and could not be fetched from the Hugging Face hub ({one_line(error, 100)}); "
        "expected a run or export folder, or the name of an export on the hub"
    )
