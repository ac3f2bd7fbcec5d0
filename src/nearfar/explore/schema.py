"""What goes over the wire, with its types: the OpenAPI document comes from here."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from nearfar.explore.limits import Limits

_LIMITS = Limits()
Row = Annotated[int, Field(ge=0, lt=2**53, description="number of a sample")]


class Problem(BaseModel):
    """Why a request was refused, in a line."""

    detail: str


class RunInfo(BaseModel):
    """A run that is shown."""

    run: int = Field(description="its number, for the parameter `run`")
    name: str
    kind: Literal["image", "sound", "series", "text"] | None = Field(description="of its samples; null while it trains")
    rows: int = Field(description="samples on the map")
    dim: int = Field(description="numbers of a vector")
    texts: bool = Field(description="whether it can be searched by text")
    uploads: Literal["image", "sound"] | None = Field(description="what files it can be searched by")
    data: str | None = Field(description="where the samples are")
    labels: int = Field(description="how many different labels there are")
    live: bool = Field(description="whether it has a log of its training")
    training: bool = Field(description="whether it has no encoder yet, so that only its log can be seen")
    state: Literal["training", "stopped", "finished"] = Field(description="what its folder says now")
    problem: str | None = Field(default=None, description="why it cannot be shown though its training is done")


class Runs(BaseModel):
    runs: list[RunInfo]
    limits: dict[str, float] = Field(description="what one request may ask for")


class Label(BaseModel):
    name: str
    rows: int = Field(description="samples that have it")


class Labels(BaseModel):
    """In the order of their numbers on the map."""

    labels: list[Label]


class Sample(BaseModel):
    row: int
    name: str
    label: str | None


class Hit(Sample):
    similarity: float = Field(description="cosine with the query")


class Found(BaseModel):
    """What is nearest, in falling order of similarity."""

    run: int
    results: list[Hit]


class Samples(BaseModel):
    samples: list[Sample]


class Vector(BaseModel):
    """A query in the space of the run's samples, of any length; compare by cosine."""

    run: int
    dim: int
    vector: list[float]


class Sought(BaseModel):
    """Exactly one of a text, a row or a vector. A picture or a sound is the body itself, as image/* or audio/*."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=_LIMITS.text)] | None = None
    row: Row | None = None
    vector: Annotated[list[FiniteFloat], Field(min_length=1, max_length=65_536)] | None = None

    @model_validator(mode="after")
    def one(self) -> "Sought":
        given = [name for name in ("text", "row", "vector") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"{' and '.join(given) or 'nothing'} is given, expected one of text, row and vector")
        return self


class Chosen(BaseModel):
    """Rows for a table, each once."""

    model_config = ConfigDict(extra="forbid")

    rows: Annotated[list[Row], Field(min_length=1, max_length=5_000_000)]


class Alike(BaseModel):
    """How near is a duplicate: a cosine, or null for the threshold that follows from the data."""

    model_config = ConfigDict(extra="forbid")

    threshold: Annotated[float, Field(ge=-1, le=1)] | None = None


class Group(BaseModel):
    rows: int = Field(description="samples in the group")
    samples: list[Sample] = Field(description="the first of them")


class Duplicates(BaseModel):
    """Near-duplicates: asked for, being looked for, or found."""

    run: int
    state: Literal["none", "running", "done", "failed"]
    done: int = Field(description="samples that were compared")
    total: int
    threshold: float | None = Field(description="cosine from which a pair counts")
    count: int = Field(description="groups in all")
    groups: list[Group] = Field(description="the largest of them")
    detail: str | None = Field(description="why it failed")


BINARY = {"type": "string", "format": "binary"}


def sought_body(what: str) -> dict[str, Any]:
    """OpenAPI of a body that is JSON, a picture or a sound, by its Content-Type."""
    kinds = ("image/*", "audio/*", "application/octet-stream")
    return {
        "requestBody": {
            "required": True,
            "description": f"{what}: JSON, or the bytes of a picture or sound, at most {_LIMITS.upload >> 20} MB",
            "content": {
                "application/json": {"schema": Sought.model_json_schema(ref_template="#/components/schemas/{model}")},
                **{kind: {"schema": BINARY} for kind in kinds},
            },
        }
    }
