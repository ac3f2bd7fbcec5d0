"""The application: the page, and the JSON API behind it."""

import csv
import io
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse

import nearfar
from nearfar.explore import schema
from nearfar.explore.batching import BusyError
from nearfar.explore.limits import Limits
from nearfar.explore.live import events
from nearfar.explore.sample_files import as_wav
from nearfar.explore.service import THUMBNAIL, Service, described, finished, hunted
from nearfar.explore.space import Query as Asked
from nearfar.explore.space import Run, Space
from nearfar.explore.uploads import Bounded
from nearfar.model.encoder import SoundModel

PAGE = {
    "index.html": "text/html; charset=utf-8",
    "explore.css": "text/css; charset=utf-8",
    "explore.js": "text/javascript; charset=utf-8",
    "map.js": "text/javascript; charset=utf-8",
    "lists.js": "text/javascript; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_SAID = {
    400: "the Host or the request is not right",
    403: "from another origin",
    404: "no such run, row or label",
    409: "the run has no encoder yet",
    413: "more than the limits allow",
    415: "a kind of file that this run cannot be searched by",
    422: "the request is not right",
    503: "too much is waiting",
}
Number = Annotated[int, Query(ge=0, lt=2**31, description="number of the run, in the order of the command")]
RowNumber = Annotated[int, Query(ge=0, lt=2**53, description="number of the sample")]
Count = Annotated[int, Query(ge=1, le=Limits.results, description="how many")]
LabelName = Annotated[str | None, Query(max_length=500, description="only samples with this label")]


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """What else a route may answer."""
    return {code: {"model": schema.Problem, "description": _SAID[code]} for code in sorted({400, 403, 422, *codes})}


def binary(kind: str, what: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {kind: {"schema": schema.BINARY}}, "description": what}}


def make_app(runs: Sequence[Run], *, limits: Limits | None = None) -> FastAPI:
    """The application of these runs; `nearfar.explore.guard.Guard` belongs around it."""
    service = Service(runs, limits or Limits())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="nearfar explore",
        version=nearfar.__version__,
        description="Search and neighbours in the embeddings of a run.",
        docs_url=None,  # its page comes from a CDN
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
    )
    app.state.service = service
    app.add_middleware(Bounded, limit=service.limits.upload)
    add_page(app)
    add_samples(app, service)
    add_search(app, service)
    add_more(app, service)

    @app.exception_handler(RequestValidationError)
    async def told(request: Request, error: RequestValidationError) -> JSONResponse:
        each = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3]]
        line = " ".join("; ".join(each).split())[:500].encode(errors="replace").decode()
        return JSONResponse({"detail": line or "the request is not right"}, 422)

    return app


def add_page(app: FastAPI) -> None:
    folder = files("nearfar.explore") / "page"
    content = {name: (folder / name).read_bytes() for name in PAGE}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(content["index.html"], media_type=PAGE["index.html"])

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        if name not in PAGE:  # a fixed list: no name becomes a path
            raise HTTPException(404, "there is no such file")
        return Response(content[name], media_type=PAGE[name])


def add_samples(app: FastAPI, service: Service) -> None:
    @app.get("/api/runs", summary="The runs that are shown", responses=problems())
    async def runs() -> schema.Runs:
        service.grow()
        limits = service.limits
        return schema.Runs(
            runs=[described(n, run, service.problems.get(n)) for n, run in enumerate(service.runs)],
            limits={"upload": limits.upload, "pixels": limits.pixels, "seconds": limits.seconds, "text": limits.text},
        )

    @app.get(
        "/api/map",
        summary="x, y and number of the label of every sample, as float32 little-endian",
        response_class=Response,
        responses={**problems(404, 409), **binary("application/octet-stream", "rows times three numbers")},
    )
    async def points(run: Number = 0) -> Response:
        return Response(service.space(run).packed(), media_type="application/octet-stream")

    @app.get("/api/labels", summary="The labels, in the order of their numbers", responses=problems(404, 409))
    async def labels(run: Number = 0) -> schema.Labels:
        space = service.space(run)
        counts = space.codes[space.codes >= 0].bincount(minlength=len(space.classes)).tolist()
        return schema.Labels(labels=[schema.Label(name=n, rows=c) for n, c in zip(space.classes, counts, strict=True)])

    @app.get("/api/samples", summary="Name and label of some samples", responses=problems(404, 409))
    async def samples(
        row: Annotated[list[RowNumber], Query(min_length=1, max_length=Limits.samples)], run: Number = 0
    ) -> schema.Samples:
        space = service.space(run)
        return schema.Samples(samples=[service.sample(space, service.row(space, each)) for each in row])

    @app.get(
        "/api/thumbnail",
        summary="A picture of a sample: an even gray where it cannot be shown, with X-Problem saying why",
        response_class=Response,
        responses={**problems(404, 409, 503), **binary("image/png", f"{THUMBNAIL} pixels square")},
    )
    async def thumbnail(row: RowNumber, run: Number = 0) -> Response:
        picture, problem = await service.thumbnail(run, row)
        said = {"X-Problem": problem.encode("ascii", "replace").decode()} if problem else None
        return Response(picture, media_type="image/png", headers=said)

    @app.get(
        "/api/sound",
        summary="A sample of a run on sounds, to play",
        response_class=Response,
        responses={**problems(404, 409, 503), **binary("audio/wav", "16 bits, one channel")},
    )
    async def sound(row: RowNumber, run: Number = 0) -> Response:
        space = service.space(run)
        name = space.names[service.row(space, row)]
        if not isinstance(space.encoder, SoundModel):
            raise HTTPException(404, f"the samples are of the kind {space.kind}, and cannot be heard")
        try:
            wave = await finished(lambda: service.reading.submit(lambda: space.samples.wave(name)))
        except HTTPException:
            raise
        except Exception as error:  # soundfile raises of several kinds on broken files
            raise HTTPException(404, f"the sound cannot be read: {' '.join(str(error).split())[:200]}") from None
        return Response(as_wav(wave, space.encoder.rate), media_type="audio/wav")


def add_search(app: FastAPI, service: Service) -> None:
    @app.post(
        "/api/search",
        summary="What is nearest to a text, a picture, a sound, a sample or a vector",
        responses=problems(404, 409, 413, 415, 422, 503),
        openapi_extra=schema.sought_body("what to look for"),
    )
    async def search(request: Request, run: Number = 0, k: Count = 20, label: LabelName = None) -> schema.Found:
        space = service.space(run)
        what, own = await service.sought(request, space)
        return await service.look(run, Asked(space, what, k=k, label=label, without=own))

    @app.post(
        "/api/embed",
        summary="A text, a picture or a sound as a vector",
        responses=problems(404, 409, 413, 415, 422, 503),
        openapi_extra=schema.sought_body("what to embed"),
    )
    async def embed(request: Request, run: Number = 0) -> schema.Vector:
        space = service.space(run)
        what, _ = await service.sought(request, space)
        vector = (await service.ask(Asked(space, what))).vector.tolist()
        return schema.Vector(run=run, dim=len(vector), vector=vector)

    @app.get("/api/neighbours", summary="The samples nearest to one of them", responses=problems(404, 409, 422, 503))
    async def neighbours(
        row: RowNumber,
        run: Number = 0,
        k: Count = 20,
        label: LabelName = None,
        within: Annotated[
            int | None,
            Query(ge=0, lt=2**31, description="another run: the neighbours there of the sample of that name"),
        ] = None,
    ) -> schema.Found:
        space = service.space(run)
        own: int | None = service.row(space, row)
        if within is not None and within != run:
            name, space, run = space.names[row], service.space(within), within
            own = space.row_of(name)
            if own is None:
                raise HTTPException(404, f"{name[:200]!r} is not among the samples of {service.run(run).name}")
        assert own is not None
        return await service.look(run, Asked(space, space.vectors.rows[own], k=k, label=label, without=own))


def table_of(space: Space, rows: Sequence[int]) -> Iterator[str]:
    """Lines of a table, some at a time: others are answered in between."""
    for start in range(0, len(rows), 1000):
        table = io.StringIO(newline="")
        writer = csv.writer(table)
        if start == 0:
            writer.writerow(["row", "path", "label"])
        writer.writerows([row, space.names[row], space.label(row) or ""] for row in rows[start : start + 1000])
        yield table.getvalue()


def add_more(app: FastAPI, service: Service) -> None:
    @app.post(
        "/api/export",
        summary="A table of samples: row, path, label",
        response_class=Response,
        responses={**problems(404, 409, 413), **binary("text/csv", "with a header line")},
    )
    async def export(chosen: schema.Chosen, run: Number = 0) -> StreamingResponse:
        space = service.space(run)
        service.row(space, max(chosen.rows))
        if len(set(chosen.rows)) < len(chosen.rows):
            raise HTTPException(422, "some rows are given more than once, expected each once")
        said = {"Content-Disposition": 'attachment; filename="selection.csv"'}
        return StreamingResponse(table_of(space, chosen.rows), media_type="text/csv; charset=utf-8", headers=said)

    @app.post("/api/duplicates", status_code=202, summary="Look for near-duplicates", responses=problems(404, 409, 503))
    async def look_for_duplicates(alike: schema.Alike, run: Number = 0) -> schema.Duplicates:
        space = service.space(run)
        try:
            return hunted(service, run, space, service.hunts.start(run, space, alike.threshold))
        except BusyError as error:
            raise HTTPException(503, str(error), {"Retry-After": "10"}) from None

    @app.get("/api/duplicates", summary="The near-duplicates that were found so far", responses=problems(404, 409))
    async def duplicates(run: Number = 0) -> schema.Duplicates:
        return hunted(service, run, service.space(run), service.hunts.of(run))

    @app.get(
        "/api/live",
        summary="The log of a run in training, as server-sent events: metrics, verdicts, state, reset",
        response_class=StreamingResponse,
        responses={
            **problems(404, 503),
            200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "events"},
        },
    )
    async def live(
        run: Number = 0, follow: Annotated[bool, Query(description="go on as the run does")] = True
    ) -> StreamingResponse:
        found = service.run(run)
        if found.folder is None:
            raise HTTPException(404, f"{found.name} is no run of nearfar's: it has no log")
        if service.streams >= service.limits.streams:
            raise HTTPException(503, "too many live views are open", {"Retry-After": "10"})

        async def counted() -> AsyncIterator[str]:
            service.streams += 1
            try:
                async for event in events(found.folder, follow=follow):  # type: ignore[arg-type]
                    yield event
            finally:
                service.streams -= 1

        return StreamingResponse(counted(), media_type="text/event-stream")
