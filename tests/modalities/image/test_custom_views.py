"""Views by the user's own code: what it is given and may return, and that seed and step alone decide its chance."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import nearfar._torchvision  # noqa: F401  before torchvision
from nearfar.modalities.image.views.custom_views import CustomViews, as_recipes
from nearfar.nn.shard import Shard
from tests.support.facts import facts

IMAGES = torch.randint(0, 256, (5, 3, 20, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def made(
    views: CustomViews, images: Tensor = IMAGES, count: int = 2, step: int = 3, shard: Shard | None = None
) -> list[Tensor]:
    recipe = as_recipes(views, 16)[0]
    return views.make(images, [recipe] * count, seed=1, step=step, shard=shard)


def unnormalized(view: Tensor, views: CustomViews) -> Tensor:
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (views.mean, views.std))
    return view * std + mean


def noisy(image: Any) -> Tensor:
    """Draws from all three generators, for one image or a batch."""
    x = image.float() / 255 if isinstance(image, Tensor) else torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
    chance = random.random() + np.random.random()  # noqa: NPY002
    return (x * 0.1 * chance + 0.5 * torch.rand(x.shape)).clamp(0, 1)


def torchvision_transform() -> Any:
    from torchvision.transforms import v2

    return v2.Compose(
        [
            v2.RandomResizedCrop(16),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]),
        ]
    )


@pytest.mark.parametrize("per_sample", [True, False])
def test_the_same_seed_and_step_give_the_same_views_and_leave_others_alone(per_sample: bool) -> None:
    views = CustomViews(noisy, per_sample=per_sample)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    first, again, other = made(views), made(views), made(views, step=4)
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    assert all(map(torch.equal, first, again)) and not torch.equal(first[0], other[0])
    assert not torch.equal(first[0], first[1])
    assert torch.equal(before[0], after[0]) and before[1:] == after[1:]


@pytest.mark.parametrize("per_sample", [True, False])
def test_rows_of_a_process_are_those_of_one_process(per_sample: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shard, "gather", lambda self, x: IMAGES)
    views = CustomViews(noisy, per_sample=per_sample)
    shards = [Shard(rank, (3, 2)) for rank in range(2)]
    parts = [made(views, shard.select(IMAGES), shard=shard)[0] for shard in shards]
    assert torch.equal(torch.cat(parts), made(views)[0])


def test_a_transform_of_torchvision_gets_pictures_and_its_scale_is_found() -> None:
    views = CustomViews(torchvision_transform())
    views.probe()
    assert views.per_sample and views.normalized and views.size == 16 and views.count is None
    assert views.mean == pytest.approx((0.1, 0.2, 0.3)) and views.std == pytest.approx((0.4, 0.5, 0.6))
    found = made(views, count=3)
    assert [view.shape for view in found] == [(5, 3, 16, 16)] * 3
    values = unnormalized(found[0], views)
    assert float(values.min()) + 1e-5 >= 0 and float(values.max()) <= 1 + 1e-5
    flat = CustomViews(nn.Sequential(torchvision_transform().transforms[-1]))
    assert flat.normalized and not flat.per_sample


def test_pictures_and_arrays_are_normalized_as_elsewhere() -> None:
    def picture(image: Image.Image) -> Image.Image:
        return image.crop((0, 0, 16, 16))

    views = CustomViews(picture, per_sample=True)
    found = made(views, count=1)[0]
    torch.testing.assert_close(unnormalized(found, views), IMAGES[:, :, :16, :16] / 255)
    as_array = CustomViews(lambda image: np.asarray(picture(image)), per_sample=True)
    torch.testing.assert_close(made(as_array, count=1)[0], found)


class Augmentation:
    """What is used of a Compose of albumentations."""

    def __init__(self) -> None:
        self.seed = 0

    def set_random_seed(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, *, image: Any) -> dict[str, Any]:
        assert image.dtype == np.uint8 and image.shape == (20, 20, 3)
        rows = np.random.default_rng(self.seed).permutation(20)[:16]
        return {"image": image[rows, :16]}


def test_a_transform_of_albumentations_is_called_by_name_with_its_own_seed() -> None:
    Augmentation.__module__ = "albumentations.core.composition"
    views = CustomViews(Augmentation())
    assert views.per_sample
    first, again = made(views), made(views)
    assert all(map(torch.equal, first, again)) and not torch.equal(first[0], first[1])


def test_the_real_albumentations() -> None:
    library = pytest.importorskip("albumentations")
    views = CustomViews(library.Compose([library.RandomCrop(16, 16), library.HorizontalFlip(), library.Normalize()]))
    assert views.normalized and all(map(torch.equal, made(views), made(views)))


def test_a_normalize_keeps_its_numbers_in_flags_as_kornia_does_or_has_one_for_all_colors() -> None:
    class Normalize(nn.Module):
        def __init__(self, mean: Any, std: Any) -> None:
            super().__init__()
            self.flags = {"mean": torch.tensor(mean), "std": torch.tensor(std)}

        def forward(self, x: Tensor) -> Tensor:
            mean, std = (self.flags[name].view(1, -1, 1, 1) for name in ("mean", "std"))
            return (x / 255 - mean) / std

    views = CustomViews(nn.Sequential(Normalize([0.5], [0.1, 0.2, 0.4])))
    assert views.normalized and views.mean == (0.5, 0.5, 0.5)
    torch.testing.assert_close(unnormalized(made(views)[0], views), IMAGES / 255)
    with pytest.raises(ValueError, match=facts("Normalize 2 3")):
        CustomViews(nn.Sequential(Normalize([0.5, 0.5], [1.0])))


def test_a_module_of_kornia_gets_a_batch() -> None:
    kornia = pytest.importorskip("kornia.augmentation")
    views = CustomViews(lambda x: kornia.RandomHorizontalFlip(p=0.5)(x / 255))
    assert all(map(torch.equal, made(views), made(views)))


def test_a_callable_on_a_batch_may_give_all_views_at_once() -> None:
    def both(batch: Tensor) -> Sequence[Tensor]:
        assert batch.dtype == torch.uint8
        return [batch[:, :, :16, :16], batch[:, :, -16:, -16:]]

    views = CustomViews(both)
    views.probe()
    assert views.count == 2 and views.size == 16
    found = made(views)
    torch.testing.assert_close(unnormalized(found[1], views), IMAGES[:, :, 4:, 4:] / 255)
    with pytest.raises(ValueError, match=facts("4 3 views.count")):
        made(views, count=3)


def test_several_transforms_are_one_for_each_view() -> None:
    views = CustomViews([lambda x: x[:, :, :16, :16], lambda x: x[:, :, 4:, 4:]])
    views.probe()
    assert views.count == 2
    torch.testing.assert_close(unnormalized(made(views)[1], views), IMAGES[:, :, 4:, 4:] / 255)


def test_what_cannot_be_views_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=facts("mean= std= nearfar.CustomViews")):
        made(CustomViews(lambda x: x / 255 * 4 - 2))
    with pytest.raises(ValueError, match=facts("(2, 48) (B, 3, h, w)")):
        CustomViews(lambda x: x[:, 0, 0]).probe()
    with pytest.raises(ValueError, match=facts("ZeroDivisionError 48")):
        CustomViews(lambda x: 1 / 0).probe()
    with pytest.raises(TypeError, match=facts("3")):
        CustomViews(3)  # type: ignore[arg-type]
    stated = CustomViews(lambda x: x / 255 * 4 - 2, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    torch.testing.assert_close(unnormalized(made(stated)[0], stated), IMAGES / 255)


def test_the_real_kornia() -> None:
    augmentation = pytest.importorskip("kornia.augmentation")
    mirrored = augmentation.RandomHorizontalFlip(p=1.0)
    resized = augmentation.RandomResizedCrop((12, 12))
    whole = augmentation.AugmentationSequential(mirrored, resized, data_keys=["input"])
    normalize = augmentation.Normalize(mean=0.5, std=torch.tensor([0.2, 0.3, 0.4]))
    scaled = CustomViews(augmentation.AugmentationSequential(mirrored, normalize))
    assert scaled.mean == (0.5, 0.5, 0.5) and scaled.std == pytest.approx((0.2, 0.3, 0.4))
    torch.testing.assert_close(unnormalized(made(scaled)[0], scaled), IMAGES.flip(3) / 255)
    for module in (whole, nn.Sequential(mirrored, resized)):
        own = CustomViews(module)
        own.probe()
        assert own.size == 12 and all(map(torch.equal, made(own), made(own)))
