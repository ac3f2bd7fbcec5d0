"""What views may change: colors, orientation and scale, by `views.color`, `views.orientation` and `views.scale`."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nearfar.config import TrainConfig
from nearfar.modalities import make_modality
from nearfar.modalities.config import VIEW_FACTORS, ViewsConfig
from nearfar.modalities.image.views.factors import FACTORS, with_factors
from nearfar.modalities.image.views.presets import byol, make_views, photos, simclr
from nearfar.modalities.image.views.view import ImageView, rotate_by_quarters
from nearfar.nn.shard import Shard
from tests.support.facts import facts


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_bytes(count: int, height: int = 32, width: int = 32) -> Tensor:
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=generator(count))


def recipes(**views: Any) -> tuple[ImageView, ...]:
    made = make_modality(TrainConfig(modality="image", image_size=32, views=ViewsConfig(**views)))
    return made.recipes  # type: ignore[attr-defined, no-any-return]


def test_quarter_turns_are_torchs_one_by_one() -> None:
    x, turns = torch.rand(40, 3, 7, 7, dtype=torch.float64), torch.arange(40) % 4
    expected = torch.stack([torch.rot90(image, int(turn), (1, 2)) for image, turn in zip(x, turns, strict=True)])
    assert torch.equal(rotate_by_quarters(x.clone(), turns), expected)
    assert rotate_by_quarters(x[:0], turns[:0]).shape == (0, 3, 7, 7)


@pytest.mark.parametrize("view", [*byol(24), photos(40)[0], replace(simclr(24)[0], interpolation="bicubic")])
def test_a_turned_view_is_the_upright_one_turned(view: ImageView) -> None:
    images, turning = random_bytes(60, 30, 26), replace(view, quarter_turns=1.0)
    drawn = turning.draw(60, 30, 26, generator())
    upright = view.apply(images, drawn)
    expected = torch.stack([torch.rot90(x, int(k), (1, 2)) for x, k in zip(upright, drawn.quarter_turns, strict=True)])
    actual = turning.apply(images, drawn)
    far = (actual - expected).abs() > 1e-4  # a value within rounding of the threshold is solarized or not
    assert far.float().mean() < (2e-3 if view.solarize else 1e-9)


def test_all_eight_orientations_are_equally_likely() -> None:
    view = with_factors(ImageView(size=8), ViewsConfig(orientation="rotate"))
    drawn = view.draw(16_000, 16, 16, generator())
    counts = torch.bincount(drawn.quarter_turns + 4 * drawn.flip, minlength=8)
    assert (counts - 2000).abs().max() < 4 * 42  # standard deviation 42
    half = replace(view, quarter_turns=0.5).draw(16_000, 16, 16, generator()).quarter_turns
    assert abs((half > 0).float().mean() - 0.375) < 0.02 and set(half.tolist()) == {0, 1, 2, 3}


def test_turns_are_drawn_last_and_only_where_asked_for() -> None:
    still, turning = replace(simclr(24)[0], affine=0.5), replace(simclr(24)[0], affine=0.5, quarter_turns=1.0)
    first, second = generator(), generator()
    a, b = still.draw(200, 32, 32, first), turning.draw(200, 32, 32, second)
    for field in fields(a):
        equal = torch.equal(getattr(a, field.name), getattr(b, field.name))
        assert equal == (field.name != "quarter_turns"), field.name
    assert not a.quarter_turns.any() and not torch.equal(first.get_state(), second.get_state())


def test_turned_views_are_those_of_seed_and_step_also_on_several_processes() -> None:
    images, views = random_bytes(12), recipes(preset="photos", orientation="rotate")
    whole = make_views(images, views, seed=3, step=7)
    assert all(a.equal(b) for a, b in zip(whole, make_views(images, views, seed=3, step=7), strict=True))
    assert not whole[0].equal(make_views(images, views, seed=3, step=8)[0])
    rows = [
        make_views(some, views, seed=3, step=7, shard=Shard(rank, (5, 7)))
        for rank, some in enumerate((images[:5], images[5:]))
    ]
    for number, view in enumerate(whole):
        torch.testing.assert_close(torch.cat([made[number] for made in rows]), view, rtol=0, atol=1e-5)


def test_each_option_changes_its_own_fields_alone() -> None:
    assert tuple(FACTORS) == VIEW_FACTORS
    view = replace(byol(32)[1], interpolation="bicubic")
    for name, options in FACTORS.items():
        for option, expected in options.items():
            made = with_factors(view, ViewsConfig(**{name: option}))  # type: ignore[arg-type]
            for field in fields(view):
                value = getattr(made, field.name)
                assert value == expected.get(field.name, getattr(view, field.name)), (name, option, field.name)
    assert with_factors(view, ViewsConfig(color="auto", orientation="auto", scale="auto")) == view


def test_settings_reach_the_recipes() -> None:
    usual = recipes(preset="photos")
    assert recipes(preset="photos", color="vary", orientation="flip", scale="vary") == usual == photos(32)
    for view in recipes(preset="photos", count=3, color="keep", orientation="keep", scale="keep"):
        assert (view.flip, view.quarter_turns, view.crop_scale, view.hue) == (0.0, 0.0, (0.5, 1.0), 0.02)
    assert {view.quarter_turns for view in recipes(preset="byol", orientation="rotate")} == {1.0}


@pytest.mark.parametrize("views", [{"preset": "dino"}, {"preset": "photos", "local": 2}])
def test_local_views_keep_their_small_crops(views: dict[str, Any]) -> None:
    made = recipes(**views, scale="keep", orientation="keep")
    assert {view.crop_scale for view in made if view.size == 32} == {(0.5, 1.0)}
    assert {view.crop_scale for view in made if view.size < 32} == {(0.05, 0.4)}
    assert {view.flip for view in made} == {0.0}


def test_the_scale_of_views_that_do_not_crop_is_refused() -> None:
    with pytest.raises(ValueError, match=facts("--views.scale keep shapes --views")):
        recipes(preset="shapes", scale="keep")


@pytest.mark.parametrize("field", ["quarter_turns", "flip"])
def test_chances_are_between_zero_and_one(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        ImageView(size=8, **{field: 1.5})  # type: ignore[arg-type]
