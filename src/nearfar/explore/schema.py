"""Requests and answers of the API with their types; the OpenAPI document is made from them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from nearfar.explore.limits import Limits

_LIMITS = Limits()
Row = Annotated[int, Field(ge=0, lt=2**53, description="number of a sample")]


class ErrorDetail(BaseModel):
    """Why a request was refused, on one line."""

    detail: str


class RunInfo(BaseModel):
    run: int = Field(description="its number, for the parameter `run`")
    name: str
    kind: str | None = Field(description="of its samples; null while training")
    rows: int = Field(description="samples on the map")
    dim: int = Field(description="length of a vector")
    texts: bool = Field(description="whether it can be searched by text")
    uploads: str | None = Field(description="kind of file it can be searched by")
    data: str | None = Field(description="where the samples are")
    labels: int = Field(description="how many different labels there are")
    live: bool = Field(description="whether it has a log of its training")
    training: bool = Field(description="whether it has no encoder yet and shows only its log")
    state: Literal["training", "stopped", "finished"] = Field(description="by the files in its folder")
    problem: str | None = Field(default=None, description="why a finished run cannot be shown")


class RunList(BaseModel):
    runs: list[RunInfo]
    limits: dict[str, float] = Field(description="limits of one request")


class LabelCount(BaseModel):
    name: str
    rows: int = Field(description="samples that have it")


class LabelList(BaseModel):
    """In the order of their numbers on the map."""

    labels: list[LabelCount]


class SampleInfo(BaseModel):
    row: int
    name: str
    label: str | None


class Hit(SampleInfo):
    similarity: float = Field(description="cosine with the query")


class SearchResults(BaseModel):
    """The nearest samples, most similar first."""

    run: int
    results: list[Hit]


class SampleList(BaseModel):
    samples: list[SampleInfo]


class Embedding(BaseModel):
    """A query as a vector, not normalized; compare by cosine."""

    run: int
    dim: int
    vector: list[float]


class RequestBody(BaseModel):
    """JSON of a few known keys: an error for each of millions would take half a minute."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def few_keys(cls, content: Any) -> Any:
        if isinstance(content, dict) and len(content) > 16:
            raise ValueError(f"{len(content):,} keys, expected {', '.join(cls.model_fields)}")
        return content


class QueryBody(RequestBody):
    """One of a text, a row or a vector. An image or a sound is the body itself, as image/* or audio/*."""

    text: Annotated[str, Field(min_length=1, max_length=_LIMITS.text)] | None = None
    row: Row | None = None
    vector: Annotated[list[FiniteFloat], Field(min_length=1, max_length=65_536)] | None = None

    @model_validator(mode="after")
    def exactly_one(self) -> "QueryBody":
        given = [name for name in ("text", "row", "vector") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"{' and '.join(given) or 'nothing'} is given, expected one of text, row and vector")
        return self


class RowSelection(RequestBody):
    """Rows to export, each once."""

    rows: Annotated[list[Row], Field(min_length=1, max_length=5_000_000)]


class SelectionToSave(RequestBody):
    """A selection with a name; without rows the one of this name is deleted."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    rows: Annotated[list[Row], Field(max_length=5_000_000)]


class SavedSelection(BaseModel):
    name: str
    rows: list[int] = Field(description="those that are in the run's embeddings")


class SavedSelections(BaseModel):
    selections: list[SavedSelection]


class DuplicatesChoice(RequestBody):
    """merge: duplicates are no negatives of each other; drop: all but the first of a group are left out."""

    choice: Literal["merge", "drop"]


class DuplicatesList(BaseModel):
    """A table for the next run."""

    path: str
    samples: int = Field(description="samples in groups")
    groups: int
    flag: str = Field(description="for nearfar train")


class DuplicatesRequest(RequestBody):
    """Cosine from which a pair is a duplicate; null: the threshold is found from the data."""

    threshold: Annotated[float, Field(ge=-1, le=1)] | None = None


class DuplicateGroup(BaseModel):
    rows: int = Field(description="samples in the group")
    samples: list[SampleInfo] = Field(description="the first of them")


class DuplicatesStatus(BaseModel):
    """A search for near-duplicates and what it found."""

    run: int
    state: Literal["none", "running", "done", "failed"]
    done: int = Field(description="samples compared so far")
    total: int
    threshold: float | None = Field(description="cosine from which a pair counts")
    count: int = Field(description="groups in all")
    groups: list[DuplicateGroup] = Field(description="the largest of them")
    detail: str | None = Field(description="why it failed")


BINARY = {"type": "string", "format": "binary"}


def query_body(purpose: str) -> dict[str, Any]:
    """OpenAPI of a body that is JSON, an image or a sound, by its Content-Type."""
    kinds = ("image/*", "audio/*", "application/octet-stream")
    return {
        "requestBody": {
            "required": True,
            "description": f"{purpose}: JSON, or the bytes of an image or sound, at most {_LIMITS.upload >> 20} MB",
            "content": {
                "application/json": {
                    "schema": QueryBody.model_json_schema(ref_template="#/components/schemas/{model}")
                },
                **{kind: {"schema": BINARY} for kind in kinds},
            },
        }
    }
