"""Views as wholes: what is drawn, that it is reproducible, and that applying it equals torchvision step by step."""

import math
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from nearfar import _torchvision  # noqa: F401
from nearfar.modalities.image.views import crop as crop_module
from nearfar.modalities.image.views import view as image_module
from nearfar.modalities.image.views.crop import random_crop_boxes
from nearfar.modalities.image.views.prepare import Preparation, resize_eval
from nearfar.modalities.image.views.presets import PRESETS, byol, dino, make_views, moco_v2, shapes, simclr
from nearfar.modalities.image.views.view import ImageView

from torchvision.transforms import RandomResizedCrop  # isort: skip
from torchvision.transforms import InterpolationMode  # isort: skip
from torchvision.transforms.v2 import functional as T  # isort: skip
from tests.support.facts import facts


def random_bytes(count: int, height: int = 32, width: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=generator)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("view", [*byol(24), simclr(40)[0], replace(simclr(40)[0], interpolation="bicubic")])
def test_a_view_equals_torchvision_with_the_drawn_parameters(view: ImageView) -> None:
    view = replace(view, solarize=0.5)
    images = random_bytes(40, 30, 26)
    drawn = view.draw(40, 30, 26, generator())
    expected = []
    for i, image in enumerate(images.float() / 255):
        mode = InterpolationMode(view.interpolation)
        x = T.resized_crop(
            image, *drawn.boxes[i].tolist(), size=[view.size] * 2, interpolation=mode, antialias=True
        ).clamp(0, 1)
        x = T.horizontal_flip(x) if drawn.flip[i] else x
        x = T.adjust_brightness(x, float(drawn.brightness[i]))
        x = T.adjust_contrast(x, float(drawn.contrast[i]))
        x = T.adjust_saturation(x, float(drawn.saturation[i]))
        x = T.adjust_hue(x, float(drawn.hue[i]))
        x = T.rgb_to_grayscale(x, num_output_channels=3) if drawn.grayscale[i] else x
        if drawn.blur[i]:
            x = T.gaussian_blur(x, [2 * view.blur_radius + 1] * 2, [float(drawn.sigma[i])])
        # a value within rounding of the threshold may fall on either side
        x = torch.where((x - 0.5).abs() < 1e-4, 0.4, x)
        x = T.solarize(x, view.solarize_threshold) if drawn.solarize[i] else x
        expected.append(T.normalize(x, list(view.mean), list(view.std)))
    actual = view(images, generator())
    difference = (actual - torch.stack(expected)).abs() * torch.tensor(view.std).view(3, 1, 1)
    assert (difference > 5e-5).float().mean() < 2e-3  # the values moved off the threshold
    assert difference.max() < 0.21


def test_crops_are_distributed_as_torchvisions() -> None:
    count, height, width = 4000, 40, 30
    ours = random_crop_boxes(count, height, width, generator()).double()
    torch.manual_seed(0)
    image = torch.empty(3, height, width)
    drawn = [RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(count)]
    theirs = torch.tensor(drawn, dtype=torch.float64)
    for name, of in {
        "area": lambda boxes: boxes[:, 2] * boxes[:, 3],
        "aspect": lambda boxes: boxes[:, 3] / boxes[:, 2],
        "top": lambda boxes: boxes[:, 0] / (height - boxes[:, 2] + 1),
        "left": lambda boxes: boxes[:, 1] / (width - boxes[:, 3] + 1),
    }.items():
        assert kolmogorov_smirnov(of(ours), of(theirs)) < 1.63 * math.sqrt(2 / count), name  # the 1 % level


def kolmogorov_smirnov(a: Tensor, b: Tensor) -> float:
    """The largest distance between two samples' distribution functions."""
    points = torch.cat([a, b]).unique()
    below_a = torch.searchsorted(a.sort()[0], points, right=True) / len(a)
    below_b = torch.searchsorted(b.sort()[0], points, right=True) / len(b)
    return float((below_a - below_b).abs().max())


@pytest.mark.parametrize("height, width", [(5, 200), (200, 5), (1, 1), (1, 9), (2, 3)])
def test_crops_stay_inside_and_fall_back_as_torchvisions(height: int, width: int) -> None:
    boxes = random_crop_boxes(500, height, width, generator())
    top, left, box_height, box_width = boxes.unbind(1)
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (box_height >= 1).all()
    assert (box_width >= 1).all()
    assert (top + box_height <= height).all()
    assert (left + box_width <= width).all()
    impossible = random_crop_boxes(3, height, width, generator(), scale=(1.0, 1.0), ratio=(0.99, 0.99))
    fallback = RandomResizedCrop.get_params(torch.empty(3, height, width), [1.0, 1.0], [0.99, 0.99])
    if max(height, width) > 2 * min(height, width):
        assert impossible.tolist() == [list(fallback)] * 3


def test_rates_and_ranges_are_the_recipes() -> None:
    view = ImageView(size=8, brightness=0.4, contrast=1.5, saturation=0.2, hue=0.1, solarize=0.3, blur_sigma=(0.5, 2.0))
    drawn = view.draw(20_000, 16, 16, generator())
    jittered = drawn.brightness != 1
    rates = {"flip": 0.5, "grayscale": 0.2, "blur": 0.5, "solarize": 0.3}
    for name, rate in rates.items():
        assert abs(getattr(drawn, name).float().mean() - rate) < 0.015, name
    assert abs(jittered.float().mean() - 0.8) < 0.015
    ranges = {"brightness": (0.6, 1.4), "contrast": (0.0, 2.5), "saturation": (0.8, 1.2), "hue": (-0.1, 0.1)}
    for name, (low, high) in ranges.items():
        values = getattr(drawn, name)
        assert low <= values.min() < values.max() <= high
        uniform = (values[jittered] - low) / (high - low)
        assert abs(uniform.mean() - 0.5) < 0.01, name
        assert abs(uniform.std() - 12**-0.5) < 0.01, name
        assert (values[~jittered] == (0 if name == "hue" else 1)).all()
    assert 0.5 <= drawn.sigma.min() < 0.51 < 1.99 < drawn.sigma.max() <= 2
    booleans = torch.stack([jittered, drawn.flip, drawn.grayscale, drawn.blur, drawn.solarize]).float()
    assert (torch.corrcoef(booleans) - torch.eye(5)).abs().max() < 0.03, "the choices depend on each other"


def test_the_same_seed_and_step_give_the_same_views() -> None:
    images, views = random_bytes(20), byol(16)
    state = torch.random.get_rng_state()
    first = make_views(images, views, seed=3, step=7)
    assert all(a.equal(b) for a, b in zip(first, make_views(images, views, seed=3, step=7), strict=True))
    assert torch.random.get_rng_state().equal(state), "the global generator was used"
    for seed, step in [(3, 8), (4, 7), (7, 3), (37, 0)]:
        assert not any(a.equal(b) for a, b in zip(first, make_views(images, views, seed=seed, step=step), strict=True))
    one, other = make_views(images, simclr(16), seed=3, step=7)
    assert not one.equal(other), "two equal recipes gave one view"
    assert make_views(images, [*views, views[0]], seed=3, step=7)[1].equal(first[1]), "a third view changed the second"


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images, views = random_bytes(23), byol(24)
    whole = make_views(images, views, seed=0, step=0)
    monkeypatch.setattr(crop_module, "SOURCE_VALUES", 3 * 32 * 32 * 2)
    monkeypatch.setattr(image_module, "VIEW_VALUES", 3 * 24 * 24 * 5)
    pieces = make_views(images, views, seed=0, step=0)
    for a, b in zip(whole, pieces, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_views_can_be_written_where_earlier_ones_were() -> None:
    images, views = random_bytes(9), dino(24, local_crops=1)
    kept = make_views(images, views, seed=0, step=0)
    expected = make_views(images, views, seed=0, step=1)
    made = make_views(images, views, seed=0, step=1, out=kept)
    assert all(a is b and a.equal(c) for a, b, c in zip(made, kept, expected, strict=True))
    with pytest.raises(ValueError, match=facts("out 2 3")):
        make_views(images, views, seed=0, step=1, out=kept[:2])
    with pytest.raises(ValueError, match=facts("out (9, 3, 24, 24) (4, 3, 24, 24)")):
        make_views(images[:4], views, seed=0, step=1, out=kept)


def test_drawn_parameters_can_be_shared_out_by_rows() -> None:
    images, view = random_bytes(12), byol(24)[1]
    drawn = view.draw(12, 32, 32, generator())
    whole = view.apply(images, drawn)
    parts = torch.cat([view.apply(images[:5], drawn.rows(0, 5)), view.apply(images[5:], drawn.rows(5, 12))])
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-5)
    assert {len(getattr(drawn.rows(2, 5), field.name)) for field in fields(drawn)} == {3}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (9, 7), (32, 32)])
def test_every_preset_takes_every_shape(name: str, shape: tuple[int, int]) -> None:
    images, views = random_bytes(3, *shape), PRESETS[name](16)
    for batch in (images, images[:1], images[:, :1].expand(-1, 3, -1, -1), images.float() / 255, images[:0]):
        made = make_views(batch, views, seed=0, step=0)
        for view, x in zip(views, made, strict=True):
            assert x.shape == (len(batch), 3, view.size, view.size)
            assert x.dtype == torch.float32
            assert x.isfinite().all()
            if view.standardize:
                continue
            pixels = x * torch.tensor(view.std).view(3, 1, 1) + torch.tensor(view.mean).view(3, 1, 1)
            assert pixels.numel() == 0 or (pixels.min() > -1e-5 and pixels.max() < 1 + 1e-5)


def test_presets_are_the_papers() -> None:
    small, large = simclr(32)[0], simclr(224)[0]
    assert (small.blur, small.brightness, small.hue) == (0.0, 0.4, 0.1)
    assert (large.blur, large.brightness, large.hue, large.blur_radius) == (0.5, 0.8, 0.2, 11)
    first, second = byol(224)
    assert (first.blur, first.solarize, second.blur, second.solarize) == (1.0, 0.0, 0.1, 0.2)
    assert (first.brightness, first.contrast, first.saturation, first.hue) == (0.4, 0.4, 0.2, 0.1)
    assert moco_v2(224)[0].crop_scale == (0.2, 1.0)
    crops = dino(224, local_crops=6)
    assert [view.size for view in crops] == [224, 224] + [96] * 6
    assert crops[0].crop_scale == (0.4, 1.0)
    assert crops[-1].crop_scale == (0.05, 0.4)


def test_resize_eval_is_the_central_square() -> None:
    images = random_bytes(5, 20, 33)
    expected = T.resize(T.center_crop(images.float() / 255, [20, 20]), [12, 12], antialias=True)
    expected = T.normalize(expected, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    torch.testing.assert_close(resize_eval(images, 12), expected, rtol=0, atol=1e-5)
    untouched = resize_eval(images[:, :, :, :20], 20, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    torch.testing.assert_close(untouched, images[:, :, :, :20].float() / 255, rtol=0, atol=1e-6)


def test_what_moves_is_drawn_last_and_only_where_asked_for() -> None:
    still, moving = simclr(24)[0], replace(simclr(24)[0], affine=0.5)
    first, second = generator(), generator()
    a, b = still.draw(200, 32, 32, first), moving.draw(200, 32, 32, second)
    for field in fields(a):
        if field.name != "affine":
            assert torch.equal(getattr(a, field.name), getattr(b, field.name)), field.name
    assert torch.equal(a.affine, torch.eye(2, 3).expand(200, 2, 3))
    assert not torch.equal(first.get_state(), second.get_state())
    moved = (b.affine != torch.eye(2, 3)).flatten(1).any(1).float().mean()
    assert 0.35 < moved < 0.65


def test_shapes_see_neither_color_brightness_nor_contrast() -> None:
    letters = torch.rand(6, 1, 32, 32, generator=generator(1)).round()
    light, dark = torch.tensor([0.9, 0.8, 0.3]).view(3, 1, 1), torch.tensor([0.1, 0.3, 0.1]).view(3, 1, 1)
    images, grays = light + (dark - light) * letters, (0.2 + 0.6 * letters).expand(-1, 3, -1, -1)
    view = shapes(32)[0]
    drawn = view.draw(6, 32, 32, generator())
    x, y = view.apply(images, drawn), view.apply(grays, drawn)
    # one is the other's negative: dark on light, and light on dark; contrasts differ by the 0.02 alone
    assert torch.nn.functional.cosine_similarity(x.flatten(1), -y.flatten(1)).min() > 0.9999
    assert torch.equal(x[:, 0], x[:, 2])
    assert 0.3 < shapes(32)[0].draw(500, 32, 32, generator()).solarize.float().mean() < 0.7


@pytest.mark.parametrize("gray", [False, True])
def test_whole_pictures_are_prepared_as_squares_are(gray: bool) -> None:
    prepare = Preparation(24, grayscale=gray, standardize=gray)
    images = torch.randint(0, 256, (3, 3, 24, 24), dtype=torch.uint8)
    torch.testing.assert_close(prepare.whole(images), prepare(images))
    values = torch.rand(2, 3, 20, 30)
    before = values.clone()
    assert prepare.whole(values).shape == (2, 3, 20, 30) and torch.equal(values, before)


def test_preparation_does_what_the_view_always_does() -> None:
    images = random_bytes(5, 20, 26)
    assert torch.equal(Preparation.of(simclr(12)[0])(images), resize_eval(images, 12))
    assert Preparation.of(simclr(12)[0]).plain and not Preparation.of(shapes(12)[0]).plain
    still = replace(shapes(20)[0], affine=0.0, solarize=0.0)
    square = images[:, :, :, 3:23]
    torch.testing.assert_close(Preparation.of(still)(images), still(square, generator()))
    gray = T.rgb_to_grayscale(square.double() / 255)
    expected = (gray - gray.mean((1, 2, 3), keepdim=True)) / (gray.std((1, 2, 3), correction=0, keepdim=True) + 0.02)
    torch.testing.assert_close(Preparation.of(still)(images), expected.expand(-1, 3, -1, -1).float(), atol=1e-4, rtol=0)


def test_views_are_made_by_one_thread_and_the_others_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before, within = torch.get_num_threads(), []

    def spy(x: Tensor, *, out: Tensor) -> Tensor:
        within.append(torch.get_num_threads())
        raise InterruptedError

    monkeypatch.setattr(image_module, "standardize", spy)
    torch.set_num_threads(2)
    try:
        with pytest.raises(InterruptedError):
            make_views(
                torch.zeros(2, 3, 8, 8, dtype=torch.uint8), (ImageView(size=8, standardize=True),), seed=0, step=0
            )
        assert within == [1] and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
