"""`nearfar.ContrastiveTransformer`: pretraining as a step of a scikit-learn pipeline. scikit-learn is not needed."""

import contextlib
import io
import tempfile
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nearfar.config import TrainConfig
from nearfar.data.python_data import ObjectData
from nearfar.messages import nearest_or_all
from nearfar.methods import known_method
from nearfar.model.encoder import Encoder
from nearfar.python_objects import released_afterwards
from nearfar.training.train import train


class NotTrainedError(ValueError, AttributeError):
    """`transform` was called before `fit`."""


class ContrastiveTransformer:
    """Samples to the embeddings of an encoder that `fit` trains on them, as `nearfar.train` does.

    Samples are whatever `nearfar.train` takes: images (N, H, W, C), series (N, T) or (N, C, T), or a list of paths or
    texts. Labels are used by methods that need them, such as supcon, and by no other. With `fit` on the training part
    alone, a pipeline's cross-validation is honest.

    Args:
        method: as in `nearfar.train`; None: its default.
        encoder, views, modality, epochs, steps, time, batch_size: as there.
        seed: the same seed on the same samples gives the same embeddings.
        settings: all other keywords of `nearfar.train`, such as {"device": "cuda"}.
        out: keep the run folder here; it must be new for each `fit`. None: it is deleted after `fit`.
        verbose: print what `nearfar.train` prints.

    Attributes:
        encoder_: the trained encoder, a `nearfar.model.Encoder`.
        n_features_in_: T, of series (N, T).

    >>> pipeline = make_pipeline(ContrastiveTransformer(epochs=20), LogisticRegression())  # doctest: +SKIP
    >>> cross_val_score(pipeline, images, labels)  # doctest: +SKIP
    """

    encoder_: Encoder
    n_features_in_: int

    def __init__(
        self,
        method: Any = None,
        *,
        encoder: Any = None,
        views: Any = None,
        modality: str | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        time: str | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        settings: Mapping[str, Any] | None = None,
        out: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.method, self.encoder, self.views, self.modality = method, encoder, views, modality
        self.epochs, self.steps, self.time, self.batch_size = epochs, steps, time, batch_size
        self.seed, self.settings, self.out, self.verbose = seed, settings, out, verbose

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803, scikit-learn's name
        """Train an encoder on samples.

        Args:
            X: N samples.
            y: N labels; used by methods that need them alone.
        """
        shape = _checked_shape(X)
        if y is not None and hasattr(X, "__len__") and hasattr(y, "__len__") and len(X) != len(y):
            raise ValueError(f"there are {len(X)} samples and {len(y)} labels, expected as many of both")
        given = {name: value for name, value in self.get_params().items() if value is not None}
        named = {name: given.pop(name, None) for name in ("method", "encoder", "views", "out", "settings", "verbose")}
        settings = {**given, **(named["settings"] or {})}
        data = X if y is None or not self._uses_labels() else (X, y)
        kept = contextlib.nullcontext(self.out) if self.out is not None else tempfile.TemporaryDirectory()
        quiet = contextlib.nullcontext() if self.verbose else contextlib.redirect_stdout(io.StringIO())
        objects = {name: named[name] for name in ("method", "encoder", "views")}
        with kept as folder, quiet, released_afterwards(ObjectData):
            out = Path(str(folder)) if self.out is not None else Path(str(folder)) / "run"
            self.encoder_ = train(data, out=out, **objects, **settings)
        if self.out is None:
            self.encoder_.folder = None
        if len(shape) == 2:
            self.n_features_in_ = shape[1]
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """(N, F): the embeddings of N samples."""
        if not self.__sklearn_is_fitted__():
            raise _not_fitted(f"this {type(self).__name__} is not trained yet: call fit before transform")
        shape = _checked_shape(X)
        if len(shape) == 2 and shape[1] != getattr(self, "n_features_in_", shape[1]):
            name, expected = type(self).__name__, self.n_features_in_
            raise ValueError(f"X has {shape[1]} features, but {name} is expecting {expected} features as input")
        found: NDArray[np.float32] = self.encoder_.encode(X, numpy=True)
        return found

    def fit_transform(self, X: Any, y: Any = None) -> NDArray[np.float32]:  # noqa: N803
        """Train on samples, and give their embeddings."""
        return self.fit(X, y).transform(X)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor, as they are now."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}{nearest_or_all(name, known)}")
            setattr(self, name, value)
        return self

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """A name for each number of an embedding."""
        if not self.__sklearn_is_fitted__():
            raise _not_fitted(f"this {type(self).__name__} is not trained yet: call fit first")
        return np.array([f"embedding{place}" for place in range(self.encoder_.num_features)], dtype=object)

    def __repr__(self) -> str:
        defaults = {name: each.default for name, each in signature(type(self)).parameters.items()}
        changed = {name: value for name, value in self.get_params().items() if value is not defaults[name]}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "encoder_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=self._uses_labels()),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(two_d_array=True, three_d_array=True, string=True),
        )

    def _uses_labels(self) -> bool:
        method = self.method
        known = known_method(method or TrainConfig.method) if method is None or isinstance(method, str) else method
        return bool(getattr(known, "needs_labels", False))


def _checked_shape(samples: Any) -> tuple[int, ...]:
    """The shape of an array, () of other samples; refuses none at all."""
    if samples is None:
        raise ValueError("X is None, expected samples")
    if hasattr(samples, "__len__") and not isinstance(samples, str | Path) and len(samples) == 0:
        raise ValueError("X has 0 sample(s), expected at least one")
    return tuple(getattr(samples, "shape", ()))


def _not_fitted(text: str) -> Exception:
    """scikit-learn's own error where that is installed: its tools look for it."""
    try:
        from sklearn.exceptions import NotFittedError
    except ImportError:
        return NotTrainedError(text)
    error: Exception = NotFittedError(text)
    return error
