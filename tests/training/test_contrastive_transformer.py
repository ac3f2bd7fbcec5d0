"""`nearfar.ContrastiveTransformer` is a step of scikit-learn's pipelines."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks, get_tags

import nearfar
from nearfar.data.python_data import ObjectData
from nearfar.python_objects import registered_objects
from tests.support.facts import facts

LABELS = np.arange(48) % 2
IMAGES = (
    np.random.default_rng(0).integers(0, 128, (48, 16, 16, 3), np.uint8)
    + (LABELS * 100).astype(np.uint8)[:, None, None, None]
)
PLAIN = {"precision": "32", "embedding": "plain"}


@pytest.fixture(autouse=True)
def _quick(train_only: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def small(**params: Any) -> nearfar.ContrastiveTransformer:
    """Two steps of a tiny network on images."""
    settings = {"image_size": 16, **PLAIN}
    given = {"encoder": "micro", "views": "simclr", "steps": 2, "batch_size": 16, "settings": settings} | params
    return nearfar.ContrastiveTransformer(**given)


def test_it_is_a_step_of_a_pipeline_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = len(registered_objects(ObjectData))
    pipeline = make_pipeline(small(), LogisticRegression(max_iter=1000))
    assert pipeline.fit(IMAGES, LABELS).score(IMAGES, LABELS) > 0.9  # one class is brighter
    names = pipeline[:-1].get_feature_names_out()
    assert len(names) == pipeline[0].encoder_.num_features
    assert list(tmp_path.iterdir()) == [] and capsys.readouterr().out == ""
    assert len(registered_objects(ObjectData)) == before
    again = pickle.loads(pickle.dumps(pipeline))
    assert np.array_equal(again[:-1].transform(IMAGES), pipeline[:-1].transform(IMAGES))


def test_the_same_seed_gives_the_same_embeddings_and_another_does_not() -> None:
    first, again, other = (clone(small(seed=seed)).fit_transform(IMAGES) for seed in (0, 0, 1))
    assert first.dtype == np.float32 and np.array_equal(first, again) and not np.array_equal(first, other)


def test_cross_validation_and_a_grid_train_anew_on_each_part() -> None:
    pipeline = make_pipeline(small(steps=1), LogisticRegression(max_iter=1000))
    assert cross_val_score(pipeline, IMAGES, LABELS, cv=2).shape == (2,)
    grid = GridSearchCV(pipeline, {"contrastivetransformer__seed": [0, 1]}, cv=2).fit(IMAGES, LABELS)
    assert grid.best_params_["contrastivetransformer__seed"] in (0, 1)


def test_labels_reach_the_methods_that_need_them(tmp_path: Path) -> None:
    assert get_tags(small(method="supcon")).target_tags.required and not get_tags(small()).target_tags.required
    made = small(method="supcon", out=tmp_path / "run", steps=1).fit(IMAGES, LABELS)
    assert made.encoder_.card["method"] == "supcon" and made.encoder_.folder == tmp_path / "run"
    with pytest.raises(ValueError, match=facts("supcon labels")):
        small(method="supcon").fit(IMAGES)


def test_its_parameters_are_those_of_its_constructor() -> None:
    made = small(seed=3)
    copied = clone(made)
    assert copied is not made and copied.get_params() == made.get_params() and "seed=3" in repr(copied)
    assert copied.set_params(seed=4, steps=None).seed == 4
    with pytest.raises(ValueError, match=facts("'sed' seed")):
        made.set_params(sed=1)


@pytest.mark.parametrize(
    ("samples", "labels", "expected"),
    [
        (IMAGES[:0], None, "0 sample"),
        ([], None, "0 sample"),
        (None, None, "None"),
        (IMAGES, [1, 2], "48 2"),
        (np.full((9, 16, 16, 3), np.nan), None, "nan"),
    ],
)
def test_wrong_samples_are_one_line(samples: Any, labels: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=facts(expected)) as error:
        small().fit(samples, labels)
    assert "\n" not in str(error.value)


def test_before_fit_there_is_nothing_to_transform() -> None:
    for ask in (lambda: small().transform(IMAGES), small().get_feature_names_out):
        with pytest.raises(NotFittedError, match=facts("fit")):
            ask()


CHECKS = [
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimators_dtypes",
    "check_estimators_pickle",
    "check_estimators_unfitted",
    "check_dont_overwrite_attributes",
    "check_fit_check_is_fitted",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_transformer_general",
    "check_estimators_overwrite_params",
    "check_dict_unchanged",
    "check_fit_idempotent",
    "check_valid_tag_types",
    "check_readonly_memmap_input",
]


@pytest.mark.parametrize("check", CHECKS)
def test_scikit_learns_own_checks(check: str) -> None:
    """Those that make sense: on series (N, T), and of a table of a few columns there are no views worth the name."""
    series = nearfar.ContrastiveTransformer(
        encoder="dilated-small", modality="series", steps=1, batch_size=8, settings=PLAIN
    )
    if not hasattr(estimator_checks, check):
        pytest.skip(f"this scikit-learn has no {check}")
    getattr(estimator_checks, check)(type(series).__name__, series)
