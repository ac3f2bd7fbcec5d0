"""What the routes share: the runs, the answers to questions, and the few threads that do the work."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NoReturn, TypeVar

import torch
from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from torch import Tensor

from nearfar.explore import schema
from nearfar.explore.batching import Batcher, BusyError, Lane
from nearfar.explore.duplicates_job import Hunt, Hunts
from nearfar.explore.limits import Limits
from nearfar.explore.live import state_of
from nearfar.explore.sample_files import GRAY, as_png
from nearfar.explore.space import Answer, Query, Run, Space, answer

Result = TypeVar("Result")
THUMBNAIL = 96  # pixels
KEPT = 4096  # thumbnails in memory


class Service:
    """The runs, and the threads."""

    def __init__(self, runs: Sequence[Run], limits: Limits) -> None:
        self.runs, self.limits, self.hunts = list(runs), limits, Hunts()
        self.batches: Batcher[Query, Answer] = Batcher(answer, batch=limits.batch, waiting=limits.waiting)
        self.reading = Lane(workers=2, waiting=limits.decoding)
        self.streams = 0
        self.problems: dict[int, str] = {}  # by run, why it could not be opened when it was done
        self._opening: set[int] = set()
        self._thumbnails: OrderedDict[tuple[int, int], tuple[bytes, str]] = OrderedDict()

    def close(self) -> None:
        self.batches.close()
        self.reading.close()

    def run(self, number: int) -> Run:
        if number >= len(self.runs):
            raise HTTPException(404, f"there is no run {number}, expected from 0 to {len(self.runs) - 1}")
        return self.runs[number]

    def space(self, number: int) -> Space:
        run = self.run(number)
        if run.space is None:
            raise HTTPException(409, f"{run.name} has no encoder yet: its map comes when its training is done")
        return run.space

    def grow(self) -> None:
        """Runs that were in training and are done are opened, each on a thread: to embed its data takes a while."""
        for number, run in enumerate(self.runs):
            if run.again is not None and number not in self._opening and number not in self.problems:
                self._opening.add(number)
                threading.Thread(target=self._open, args=(number, run.again), daemon=True).start()

    def _open(self, number: int, again: Callable[[], Run | None]) -> None:
        try:
            self.runs[number] = again() or self.runs[number]
        except Exception as error:  # of data that moved, of the disk: told on the page, and the log is still shown
            self.problems[number] = " ".join(str(error).split())[:300] or type(error).__name__
        finally:
            self._opening.discard(number)

    def row(self, space: Space, row: int) -> int:
        if row >= len(space):
            raise HTTPException(404, f"there is no row {row}, expected from 0 to {len(space) - 1}")
        return row

    def sample(self, space: Space, row: int) -> schema.Sample:
        return schema.Sample(row=row, name=space.names[row], label=space.label(row))

    async def ask(self, asked: Query) -> Answer:
        if asked.label is not None and asked.label not in asked.space.classes:
            raise HTTPException(404, f"there is no label {asked.label[:60]!r}")
        try:
            return await finished(lambda: self.batches.submit(asked))
        except ValueError as error:
            raise HTTPException(422, str(error)) from None

    async def look(self, number: int, asked: Query) -> schema.Found:
        found, space = await self.ask(asked), asked.space
        pairs = zip(found.rows.tolist(), found.similarities.tolist(), strict=True)
        hits = [
            schema.Hit(row=row, name=space.names[row], label=space.label(row), similarity=round(s, 6))
            for row, s in pairs
        ]
        return schema.Found(run=number, results=hits)

    async def thumbnail(self, number: int, row: int) -> tuple[bytes, str]:
        """A PNG, and why it is an even gray, where it is."""
        space, key = self.space(number), (number, row)
        if key in self._thumbnails:
            self._thumbnails.move_to_end(key)
            return self._thumbnails[key]
        name = space.names[self.row(space, row)]

        def made() -> tuple[bytes, str]:
            try:
                return as_png(space.samples.picture(name, THUMBNAIL)), ""
            except Exception as error:  # Pillow and soundfile raise of every kind on broken files
                gray = torch.full((THUMBNAIL, THUMBNAIL, 3), GRAY, dtype=torch.uint8).numpy()
                return as_png(gray), " ".join(str(error).split())[:200] or type(error).__name__

        found = self._thumbnails[key] = await finished(lambda: self.reading.submit(made))
        while len(self._thumbnails) > KEPT:
            self._thumbnails.popitem(last=False)
        return found

    async def sought(self, request: Request, space: Space) -> tuple[str | Tensor, int | None]:
        """What the body asks for: JSON, a picture or a sound, by its Content-Type; and the row that it is, if any."""
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        content = await request.body()
        if kind == "application/json":
            return self._stated(content, space)
        wanted = {"image": "image/", "sound": "audio/"}.get(space.kind)
        if wanted is None or not (kind.startswith(wanted) or kind == "application/octet-stream"):
            takes = f"application/json{f' or {wanted}*' if wanted else ''}"
            raise HTTPException(415, f"the body is {kind[:60] or 'of no stated kind'}, expected {takes} for this run")
        read = space.picture if space.kind == "image" else space.sound
        try:
            return await finished(lambda: self.reading.submit(lambda: read(content, self.limits))), None
        except (ValueError, ModuleNotFoundError) as error:
            raise HTTPException(422, str(error)) from None

    def _stated(self, content: bytes, space: Space) -> tuple[str | Tensor, int | None]:
        try:
            body = schema.Sought.model_validate_json(content)
        except ValidationError as error:
            refuse(error)
        if body.row is not None:
            return space.vectors.rows[self.row(space, body.row)], body.row
        if body.text is not None:
            if not space.reads:
                raise HTTPException(422, "this run reads no texts: it was trained without captions")
            if not body.text.strip():
                raise HTTPException(422, "the text is empty, expected a few words such as 'a red car'")
            return body.text, None
        assert body.vector is not None
        if len(body.vector) != space.vectors.dim:
            raise HTTPException(
                422, f"the vector has {len(body.vector)} numbers, expected {space.vectors.dim}; is it of another run?"
            )
        vector = torch.tensor(body.vector)
        if not bool(vector.isfinite().all()) or not bool(vector.any()):
            raise HTTPException(422, "the vector has no direction: it is zero, or too long for 32 bits")
        return vector, None


def refuse(error: ValidationError) -> NoReturn:
    """As FastAPI tells of what is wrong in a body."""
    told = [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False, include_context=False)]
    raise RequestValidationError(told) from None


async def finished(submit: Callable[[], "Future[Result]"]) -> Result:
    """The result of work on another thread; 503 where too much waits."""
    try:
        return await asyncio.wrap_future(submit())
    except BusyError as error:
        raise HTTPException(503, str(error), {"Retry-After": "1"}) from None


def hunted(service: Service, number: int, space: Space, hunt: Hunt) -> schema.Duplicates:
    limits = service.limits
    return schema.Duplicates(
        run=number,
        state=hunt.state,  # type: ignore[arg-type]
        done=hunt.done,
        total=len(space),
        threshold=hunt.found.threshold if hunt.found is not None else hunt.threshold,
        count=len(hunt.members),
        groups=[
            schema.Group(rows=len(rows), samples=[service.sample(space, row) for row in rows[: limits.members]])
            for rows in hunt.members[: limits.groups]
        ],
        detail=hunt.detail,
    )


def described(number: int, run: Run, problem: str | None = None) -> schema.RunInfo:
    space = run.space
    live = run.folder is not None and (space is None or (run.folder / "metrics.jsonl").is_file())
    if space is None:
        return schema.RunInfo(
            run=number,
            name=run.name,
            kind=None,
            rows=0,
            dim=0,
            texts=False,
            uploads=None,
            data=None,
            labels=0,
            live=live,
            training=True,
            state=state_of(run.folder) if run.folder is not None else "finished",
            problem=problem,
        )
    return schema.RunInfo(
        run=number,
        name=run.name,
        kind=space.kind,
        rows=len(space),
        dim=space.vectors.dim,
        texts=space.reads,
        uploads=space.kind if space.kind == "image" or space.kind == "sound" else None,
        data=space.samples.data,
        labels=len(space.classes),
        live=live,
        training=False,
        state="finished",
    )
