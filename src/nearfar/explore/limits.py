"""How much one request, and all requests together, may ask for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Requests beyond a limit get a 4xx; requests to a full server a 503."""

    upload: int = 20 << 20  # bytes of a body
    json: int = 2 << 20  # bytes of a body of JSON, such as a vector; a list of rows may have `upload`
    bodies: int = 128 << 20  # bytes of all bodies that are being received
    client_bodies: int = 64 << 20  # of those from one address; a browser sends one upload at a time
    body_seconds: float = 30.0  # to receive a body
    pixels: int = 50_000_000  # of a JPEG, checked before decoding; a quarter of it of other kinds
    seconds: float = 60.0  # of a sound, checked before decoding
    text: int = 2000  # characters
    results: int = 200  # of a search
    samples: int = 200  # described in one answer
    batch: int = 16  # queries in one forward pass and search
    waiting: int = 128  # queries that may wait
    decoding: int = 512  # images and sounds that may wait to be read
    streams: int = 16  # live views at a time
    groups: int = 200  # of duplicates in an answer
    members: int = 24  # of a group in an answer
