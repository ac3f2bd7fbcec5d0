"""The web application: the page and the JSON API behind it."""

import csv
import io
import shlex
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse

import nearfar
from nearfar.explore import schema
from nearfar.explore.batching import BusyError
from nearfar.explore.curation import (
    DUPLICATES,
    SELECTIONS,
    beside,
    save_selection,
    saved_selections,
    write_duplicates,
)
from nearfar.explore.guard import BodyLimit
from nearfar.explore.limits import Limits
from nearfar.explore.live import events
from nearfar.explore.media import as_wav
from nearfar.explore.service import Service, result_of
from nearfar.explore.space import THUMBNAIL, ExploredRun, Space
from nearfar.explore.space import Query as SpaceQuery
from nearfar.messages import one_line

PAGE = {
    "index.html": "text/html; charset=utf-8",
    "explore.css": "text/css; charset=utf-8",
    **dict.fromkeys(
        ("explore.js", "map.js", "lists.js", "live.js", "curation.js", "colours.js"), "text/javascript; charset=utf-8"
    ),
    "icon.svg": "image/svg+xml",
}
_ERRORS = {
    400: "wrong Host header or request",
    403: "from another origin",
    404: "no such run, row or label",
    409: "the run has no encoder yet",
    413: "beyond the limits",
    415: "a kind of file that this run cannot be searched by",
    422: "invalid request",
    503: "too many requests are waiting",
}
RunNumber = Annotated[int, Query(ge=0, lt=2**31, description="number of the run, in the order of the command")]
RowNumber = Annotated[int, Query(ge=0, lt=2**53, description="number of the sample")]
Count = Annotated[int, Query(ge=1, le=Limits.results, description="number of results")]
LabelName = Annotated[str | None, Query(max_length=500, description="only samples with this label")]
Result = TypeVar("Result")
Responses = dict[int | str, dict[str, Any]]


def errors(*codes: int) -> Responses:
    """The errors that a route may answer with."""
    return {
        code: {"model": schema.ErrorDetail, "description": _ERRORS[code]} for code in sorted({400, 403, 422, *codes})
    }


def binary(kind: str, description: str, *codes: int) -> dict[str, Any]:
    """Arguments of a route that answers with bytes of this kind, or with these errors."""
    answer = {"content": {kind: {"schema": schema.BINARY}}, "description": description}
    return {"response_class": Response, "responses": {**errors(*codes), 200: answer}}


def from_query(purpose: str) -> dict[str, Any]:
    """Arguments of a route whose body is a query."""
    return {"responses": errors(404, 409, 413, 415, 503), "openapi_extra": schema.query_body(purpose)}


def make_app(runs: Sequence[ExploredRun], *, limits: Limits | None = None) -> FastAPI:
    """The application for these runs; put `nearfar.explore.guard.Guard` around it."""
    service = Service(runs, limits or Limits())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="nearfar explore",
        version=nearfar.__version__,
        description="Search and neighbours in the embeddings of a run.",
        docs_url=None,  # FastAPI's page loads from a CDN
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
    )
    app.state.service = service
    app.add_middleware(BodyLimit, limits=service.limits)
    add_page(app)
    add_sample_routes(app, service)
    add_search_routes(app, service)
    add_selection_routes(app, service)
    add_live_route(app, service)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        each = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3]]
        line = " ".join("; ".join(each).split())[:500].encode(errors="replace").decode()
        return JSONResponse({"detail": line or "invalid request"}, 422)

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


def add_sample_routes(app: FastAPI, service: Service) -> None:
    @app.get("/api/runs", summary="The runs that are shown", responses=errors())
    async def runs() -> schema.RunList:
        service.open_finished_runs()
        limits = {name: getattr(service.limits, name) for name in ("upload", "pixels", "seconds", "text")}
        return schema.RunList(runs=[service.run_info(number) for number in range(len(service.runs))], limits=limits)

    @app.get(
        "/api/map",
        summary="x, y and label number of every sample, as float32 little-endian",
        **binary("application/octet-stream", "three numbers for each row", 404, 409),
    )
    async def points(run: RunNumber = 0) -> Response:
        return Response(service.space(run).packed(), media_type="application/octet-stream")

    @app.get("/api/labels", summary="The labels, in the order of their numbers", responses=errors(404, 409))
    async def labels(run: RunNumber = 0) -> schema.LabelList:
        space = service.space(run)
        counts = space.codes[space.codes >= 0].bincount(minlength=len(space.classes)).tolist()
        pairs = zip(space.classes, counts, strict=True)
        return schema.LabelList(labels=[schema.LabelCount(name=name, rows=count) for name, count in pairs])

    @app.get("/api/samples", summary="Name and label of some samples", responses=errors(404, 409))
    async def samples(
        row: Annotated[list[RowNumber], Query(min_length=1, max_length=Limits.samples)], run: RunNumber = 0
    ) -> schema.SampleList:
        space = service.space(run)
        return schema.SampleList(samples=[service.sample(space, service.row(space, each)) for each in row])

    @app.get(
        "/api/thumbnail",
        summary="A picture of a sample: plain gray where it cannot be shown, with the reason in X-Problem",
        **binary("image/png", f"{THUMBNAIL} pixels square", 404, 409, 503),
    )
    async def thumbnail(row: RowNumber, run: RunNumber = 0) -> Response:
        picture, problem = await service.thumbnail(run, row)
        headers = {"X-Problem": problem.encode("ascii", "replace").decode()} if problem else None
        return Response(picture, media_type="image/png", headers=headers)

    playable = binary("audio/wav", "16 bits, one channel", 404, 409, 503)

    @app.get("/api/sound", summary="A sample of a run on sounds, to play", **playable)
    async def sound(row: RowNumber, run: RunNumber = 0) -> Response:
        space = service.space(run)
        name = space.names[service.row(space, row)]
        modality = space.encoder.modality
        try:
            heard = await result_of(lambda: service.readers.submit(lambda: modality.audio(space.samples.read(name))))
        except HTTPException:
            raise
        except Exception as error:  # soundfile raises errors of several kinds on broken files
            raise HTTPException(404, f"the sound cannot be read: {one_line(error)}") from None
        if heard is None:
            raise HTTPException(404, f"a sample of kind {space.kind} cannot be played")
        return Response(as_wav(*heard), media_type="audio/wav")


def add_search_routes(app: FastAPI, service: Service) -> None:
    @app.post(
        "/api/search",
        summary="The samples nearest to a text, an image, a sound, a sample or a vector",
        **from_query("the query"),
    )
    async def search(
        request: Request, run: RunNumber = 0, k: Count = 20, label: LabelName = None
    ) -> schema.SearchResults:
        space = service.space(run)
        what, own = await service.read_query(request, space)
        return await service.search(run, SpaceQuery(space, what, k=k, label=label, without=own))

    @app.post("/api/embed", summary="A text, an image or a sound as a vector", **from_query("what to embed"))
    async def embed(request: Request, run: RunNumber = 0) -> schema.Embedding:
        space = service.space(run)
        what, _ = await service.read_query(request, space)
        vector = (await service.answer(SpaceQuery(space, what))).vector.tolist()
        return schema.Embedding(run=run, dim=len(vector), vector=vector)

    @app.get("/api/neighbours", summary="The samples nearest to one of them", responses=errors(404, 409, 422, 503))
    async def neighbors(
        row: RowNumber,
        run: RunNumber = 0,
        k: Count = 20,
        label: LabelName = None,
        within: Annotated[
            int | None, Query(ge=0, lt=2**31, description="another run: search there, from the sample of the same name")
        ] = None,
    ) -> schema.SearchResults:
        space = service.space(run)
        own: int | None = service.row(space, row)
        if within is not None and within != run:
            name, space, run = space.names[row], service.space(within), within
            own = space.row_of(name)
            if own is None:
                raise HTTPException(404, f"{name[:200]!r} is not among the samples of {service.run(run).name}")
        assert own is not None
        return await service.search(run, SpaceQuery(space, space.vectors.rows[own], k=k, label=label, without=own))


def csv_lines(space: Space, rows: Sequence[int]) -> Iterator[str]:
    """Lines of a table, 1000 at a time, so that other requests are answered in between."""
    for start in range(0, len(rows), 1000):
        table = io.StringIO(newline="")
        writer = csv.writer(table)
        if start == 0:
            writer.writerow(["row", "path", "label"])
        writer.writerows([row, space.names[row], space.label(row) or ""] for row in rows[start : start + 1000])
        yield table.getvalue()


def refused(work: Callable[[], Result]) -> Result:
    """The result; what was refused, or cannot be written, is an answer and no failure of the server."""
    try:
        return work()
    except (ValueError, OSError) as error:
        raise HTTPException(409, one_line(error)) from None


def _as_rows(space: Space, found: Mapping[str, Sequence[str]]) -> schema.SavedSelections:
    """The selections by the rows of the space; samples that it does not have are left out."""
    selections = []
    for name, samples in sorted(found.items()):
        rows = [row for each in samples if (row := space.row_of(each)) is not None]
        selections.append(schema.SavedSelection(name=name, rows=rows))
    return schema.SavedSelections(selections=selections)


def add_selection_routes(app: FastAPI, service: Service) -> None:
    table = binary("text/csv", "with a header line", 404, 409, 413)

    @app.post("/api/export", summary="A table of samples: row, path, label", **table)
    async def export(selection: schema.RowSelection, run: RunNumber = 0) -> StreamingResponse:
        space = service.space(run)
        service.row(space, max(selection.rows))
        if len(set(selection.rows)) < len(selection.rows):
            raise HTTPException(422, "some rows are given more than once, expected each once")
        headers = {"Content-Disposition": 'attachment; filename="selection.csv"'}
        lines = csv_lines(space, selection.rows)
        return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)

    @app.get("/api/selections", summary="The saved selections", responses=errors(404, 409))
    async def saved(run: RunNumber = 0) -> schema.SavedSelections:
        path = beside(service.run(run), service.space(run), SELECTIONS)
        return _as_rows(service.space(run), refused(lambda: saved_selections(path)))

    @app.post("/api/selections", summary="Save a selection beside the run", responses=errors(404, 409, 413))
    async def save(selection: schema.SelectionToSave, run: RunNumber = 0) -> schema.SavedSelections:
        space = service.space(run)
        service.row(space, max(selection.rows, default=0))
        names = [space.names[row] for row in sorted(set(selection.rows))]
        path = beside(service.run(run), space, SELECTIONS)
        return _as_rows(space, refused(lambda: save_selection(path, selection.name, names)))

    @app.post("/api/duplicates/list", summary="Write the duplicates for the next run", responses=errors(404, 409))
    async def list_duplicates(asked: schema.DuplicatesChoice, run: RunNumber = 0) -> schema.DuplicatesList:
        space, groups = service.space(run), service.duplicates.of(run).groups
        if not groups:
            raise HTTPException(409, "no duplicates were found yet, expected a finished search")
        path = beside(service.run(run), space, DUPLICATES)
        count = refused(lambda: write_duplicates(path, space.names, groups, asked.choice))
        flag = shlex.join(["--data.groups-file", str(path)])
        return schema.DuplicatesList(path=str(path), samples=count, groups=len(groups), flag=flag)

    @app.post("/api/duplicates", status_code=202, summary="Search near-duplicates", responses=errors(404, 409, 503))
    async def find_duplicates(asked: schema.DuplicatesRequest, run: RunNumber = 0) -> schema.DuplicatesStatus:
        space = service.space(run)
        try:
            return service.duplicates_status(run, space, service.duplicates.start(run, space, asked.threshold))
        except BusyError as error:
            raise HTTPException(503, str(error), {"Retry-After": "10"}) from None

    @app.get("/api/duplicates", summary="The near-duplicates found so far", responses=errors(404, 409))
    async def duplicates(run: RunNumber = 0) -> schema.DuplicatesStatus:
        return service.duplicates_status(run, service.space(run), service.duplicates.of(run))


def add_live_route(app: FastAPI, service: Service) -> None:
    stream = {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "events"}

    @app.get(
        "/api/live",
        summary="The log of a run in training, as server-sent events: metrics, verdicts, state, reset",
        response_class=StreamingResponse,
        responses={**errors(404, 503), 200: stream},
    )
    async def live(
        run: RunNumber = 0, follow: Annotated[bool, Query(description="send new lines as they come")] = True
    ) -> StreamingResponse:
        found = service.run(run)
        folder = found.folder
        if folder is None:
            raise HTTPException(404, f"{found.name} is not a run folder: it has no log")
        if service.streams >= service.limits.streams:
            raise HTTPException(503, "too many live views are open", {"Retry-After": "10"})

        async def counted() -> AsyncIterator[str]:
            service.streams += 1
            try:
                async for event in events(folder, follow=follow):
                    yield event
            finally:
                service.streams -= 1

        return StreamingResponse(counted(), media_type="text/event-stream")
