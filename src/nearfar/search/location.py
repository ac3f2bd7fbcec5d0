"""Where the samples of a file of embeddings are: as the user says, else as the file says, if it may.

A file of embeddings may be anyone's, and names a folder that is then shown. What `nearfar embed` writes is signed with
a key of the user's own; a file without this signature may name only what lies beside it or is made on the spot.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from nearfar.data.cache import platform_cache
from nearfar.data.tables import path_and_rows

SIGNATURE = "signature"
_MANY = re.compile(r"\d{7}")  # a million samples or more


class Location(NamedTuple):
    """`data` as `Modality.open` takes it, None if it is not known; `within`: the folder that no file may leave."""

    data: str | None
    split: str | None = None
    within: Path | None = None

    def by(self, given: str | None) -> "Location":
        """As the user says, if they do."""
        return self if given is None else Location(given, self.split)


def location_of(file: Path, about: Mapping[str, Any]) -> Location:
    """Where the samples are by a file of embeddings, and what it says of itself."""
    data, split = about.get("data"), about.get("split")
    split = split if isinstance(split, str) else None
    if not isinstance(data, str) or not data:
        return Location(None, split)
    if _is_signed(about):
        return Location(data, split)
    folder = file.absolute().parent.resolve()
    with suppress(OSError, ValueError):
        place = Path(path_and_rows(data)[0]).expanduser()
        if place.exists():
            place = place.resolve()
            return Location(data if place.is_relative_to(folder) else None, split, folder)
        # A name of what is made on the spot; nothing is downloaded, and not billions of samples are made.
        if "/" not in data and os.sep not in data and not _MANY.search(data):
            return Location(data, split, folder)
    return Location(None, split, folder)


def signed(about: dict[str, Any]) -> dict[str, Any]:
    """With the user's signature; as it is where the key cannot be kept."""
    key = _key(make=True)
    return about if key is None else {**about, SIGNATURE: _digest(about, key)}


def _is_signed(about: Mapping[str, Any]) -> bool:
    key, found = _key(), about.get(SIGNATURE)
    if key is None or not isinstance(found, str):
        return False
    return hmac.compare_digest(found.encode(errors="replace"), _digest(about, key).encode())


def _digest(about: Mapping[str, Any], key: bytes) -> str:
    plain = {name: value for name, value in about.items() if name != SIGNATURE}
    return hmac.new(key, json.dumps(plain, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _key(*, make: bool = False) -> bytes | None:
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home
        path = platform_cache() / "nearfar" / "signing-key"
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent) as file:  # readable by its owner alone
                file.write(secrets.token_bytes(32))
                file.flush()
                with suppress(FileExistsError):
                    os.link(file.name, path)  # whole, and of several processes the first
        key = path.read_bytes()
        return key if len(key) == 32 else None
    return None
