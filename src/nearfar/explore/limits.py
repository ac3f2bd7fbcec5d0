"""How much one request, and all of them together, may ask for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What is beyond a limit is refused with a 4xx, and what comes while all is full with a 503."""

    upload: int = 20 << 20  # bytes of a body
    pixels: int = 50_000_000  # of a picture, before it is decoded
    seconds: float = 60.0  # of a sound, before it is decoded
    text: int = 2000  # characters
    results: int = 200  # of a search
    samples: int = 200  # described at a time
    batch: int = 16  # queries to one forward pass and one look through the rows
    waiting: int = 128  # queries that may wait
    decoding: int = 512  # pictures and sounds that may wait to be read
    streams: int = 16  # live views at a time
    groups: int = 200  # of duplicates that are told
    members: int = 24  # of a group that are told
