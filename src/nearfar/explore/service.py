"""What the routes share: the runs, answers to queries, and the threads that do the work."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from torch import Tensor

from nearfar.explore import schema
from nearfar.explore.batching import Batcher, BoundedPool, BusyError
from nearfar.explore.duplicates_job import DuplicatesJob, DuplicatesJobs
from nearfar.explore.limits import Limits
from nearfar.explore.live import state_of
from nearfar.explore.media import as_png
from nearfar.explore.space import THUMBNAIL, Answer, ExploredRun, Query, Space, answer
from nearfar.messages import one_line
from nearfar.search.thumbnails import GRAY, picture_of

Result = TypeVar("Result")
MAX_CACHED = 4096  # thumbnails in memory
MISSING = 8  # pixels of a sample that cannot be shown: by this size the page knows it, and asks why


class Service:
    """The runs and the threads of one application."""

    def __init__(self, runs: Sequence[ExploredRun], limits: Limits) -> None:
        self.runs, self.limits, self.duplicates = list(runs), limits, DuplicatesJobs()
        self.batches: Batcher[Query, Answer] = Batcher(answer, batch=limits.batch, waiting=limits.waiting)
        self.readers = BoundedPool(workers=2, waiting=limits.decoding)
        self.streams = 0
        self.problems: dict[int, str] = {}  # by run, why it could not be opened when it was finished
        self._opening: set[int] = set()
        self._thumbnails: OrderedDict[tuple[int, int], tuple[bytes, str]] = OrderedDict()

    def close(self) -> None:
        self.batches.close()
        self.readers.close()

    def run(self, number: int) -> ExploredRun:
        if number >= len(self.runs):
            raise HTTPException(404, f"there is no run {number}, expected from 0 to {len(self.runs) - 1}")
        return self.runs[number]

    def space(self, number: int) -> Space:
        run = self.run(number)
        if run.space is None:
            raise HTTPException(409, f"{run.name} has no encoder yet: its map appears when training is done")
        return run.space

    def open_finished_runs(self) -> None:
        """Open runs that finished training meanwhile, each on a thread: embedding its data takes a while."""
        for number, run in enumerate(self.runs):
            if run.again is not None and number not in self._opening and number not in self.problems:
                self._opening.add(number)
                threading.Thread(target=self._open, args=(number, run.again), daemon=True).start()

    def _open(self, number: int, again: Callable[[], ExploredRun | None]) -> None:
        try:
            self.runs[number] = again() or self.runs[number]
        except Exception as error:  # such as data that moved: the page shows the message and the log
            self.problems[number] = one_line(error, 300)
        finally:
            self._opening.discard(number)

    def row(self, space: Space, row: int) -> int:
        if row >= len(space):
            raise HTTPException(404, f"there is no row {row}, expected from 0 to {len(space) - 1}")
        return row

    def sample(self, space: Space, row: int) -> schema.SampleInfo:
        return schema.SampleInfo(row=row, name=space.names[row], label=space.label(row))

    async def answer(self, query: Query) -> Answer:
        if query.label is not None and query.label not in query.space.classes:
            raise HTTPException(404, f"there is no label {query.label[:60]!r}")
        try:
            return await result_of(lambda: self.batches.submit(query))
        except ValueError as error:
            raise HTTPException(422, str(error)) from None

    async def search(self, number: int, query: Query) -> schema.SearchResults:
        found, space = await self.answer(query), query.space
        hits = [
            schema.Hit(row=row, name=space.names[row], label=space.label(row), similarity=round(similarity, 6))
            for row, similarity in zip(found.rows.tolist(), found.similarities.tolist(), strict=True)
        ]
        return schema.SearchResults(run=number, results=hits)

    async def thumbnail(self, number: int, row: int) -> tuple[bytes, str]:
        """A PNG, and why it is plain gray, if it is."""
        space, key = self.space(number), (number, row)
        if key in self._thumbnails:
            self._thumbnails.move_to_end(key)
            return self._thumbnails[key]
        name = space.names[self.row(space, row)]

        def make() -> tuple[bytes, str]:
            try:
                return as_png(picture_of(space.samples, name, THUMBNAIL)), ""
            except Exception as error:  # decoders raise errors of every kind on broken files
                return as_png(np.full((MISSING, MISSING, 3), GRAY, np.uint8)), one_line(error)

        found = self._thumbnails[key] = await result_of(lambda: self.readers.submit(make))
        while len(self._thumbnails) > MAX_CACHED:
            self._thumbnails.popitem(last=False)
        return found

    async def read_query(self, request: Request, space: Space) -> tuple[str | Tensor, int | None]:
        """The query in a body: JSON, an image or a sound, by its Content-Type; and its row, if it is a sample."""
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        content = await request.body()
        if kind == "application/json":
            return await result_of(lambda: self.readers.submit(partial(self._read_json, content, space)))
        wanted = {"image": "image/", "sound": "audio/"}.get(space.kind)
        if wanted is None or not (kind.startswith(wanted) or kind == "application/octet-stream"):
            takes = f"application/json{f' or {wanted}*' if wanted else ''}"
            raise HTTPException(415, f"the Content-Type is {kind[:60] or 'missing'}, expected {takes} for this run")
        modality, limits = space.encoder.modality, self.limits
        read = partial(modality.read_upload, content, pixels=limits.pixels, seconds=limits.seconds)
        try:
            return await result_of(lambda: self.readers.submit(read)), None
        except (ValueError, ModuleNotFoundError) as error:
            raise HTTPException(422, str(error)) from None

    def _read_json(self, content: bytes, space: Space) -> tuple[str | Tensor, int | None]:
        try:
            body = schema.QueryBody.model_validate_json(content)
        except ValidationError as error:  # in FastAPI's format
            found = error.errors(include_url=False, include_context=False)
            raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in found]) from None
        if body.row is not None:
            return space.vectors.rows[self.row(space, body.row)], body.row
        if body.text is not None:
            if not space.encoder.reads_texts:
                raise HTTPException(422, "this run reads no texts: it was trained without captions")
            if not body.text.strip():
                raise HTTPException(422, "the text is empty, expected a few words such as 'a red car'")
            return body.text, None
        assert body.vector is not None
        if len(body.vector) != space.vectors.dim:
            count = f"the vector has {len(body.vector)} numbers, expected {space.vectors.dim}"
            raise HTTPException(422, f"{count}; is it from another run?")
        vector = torch.tensor(body.vector)
        if not bool(vector.isfinite().all()) or not bool(vector.any()):
            raise HTTPException(422, "the vector has no direction: it is zero, or too long for float32")
        return vector, None

    def duplicates_status(self, number: int, space: Space, job: DuplicatesJob) -> schema.DuplicatesStatus:
        most = self.limits.members
        shown = job.groups[: self.limits.groups]
        groups = [(len(rows), [self.sample(space, row) for row in rows[:most]]) for rows in shown]
        return schema.DuplicatesStatus(
            run=number,
            state=job.state,  # type: ignore[arg-type]
            done=job.done,
            total=len(space),
            threshold=job.found.threshold if job.found is not None else job.threshold,
            count=len(job.groups),
            groups=[schema.DuplicateGroup(rows=rows, samples=samples) for rows, samples in groups],
            detail=job.detail,
        )

    def run_info(self, number: int) -> schema.RunInfo:
        run, space = self.runs[number], self.runs[number].space
        kind = None if space is None else space.kind
        return schema.RunInfo(
            run=number,
            name=run.name,
            kind=kind,
            rows=0 if space is None else len(space),
            dim=0 if space is None else space.vectors.dim,
            texts=space is not None and space.encoder.reads_texts,
            uploads=kind if kind == "image" or kind == "sound" else None,
            data=None if space is None else space.samples.data,
            labels=0 if space is None else len(space.classes),
            live=run.folder is not None and (space is None or (run.folder / "metrics.jsonl").is_file()),
            training=space is None,
            state="finished" if space is not None or run.folder is None else state_of(run.folder),
            problem=self.problems.get(number) if space is None else None,
        )


async def result_of(submit: Callable[[], "Future[Result]"]) -> Result:
    """The result of work on another thread; 503 where too much waits."""
    try:
        return await asyncio.wrap_future(submit())
    except BusyError as error:
        raise HTTPException(503, str(error), {"Retry-After": "1"}) from None
