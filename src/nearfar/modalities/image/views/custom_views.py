"""Views by a callable of the user's own: on a batch, or a transform of torchvision or albumentations on each sample."""

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from nearfar.modalities.image.views.color import normalize
from nearfar.modalities.image.views.presets import simclr
from nearfar.modalities.image.views.view import IMAGENET_MEAN, IMAGENET_STD, ImageView
from nearfar.nn.shard import Shard

Triple = tuple[float, float, float]
PER_SAMPLE = ("torchvision.transforms", "albumentations", "imgaug", "monai.transforms")  # libraries of such transforms
_PROBED = (48, 64)  # pixels of two made-up batches that show what a callable gives


class CustomViews:
    """Augmentation by your own code, for `nearfar.train(..., views=CustomViews(...))`.

    Random numbers that the code draws from torch, numpy and `random` depend on the run's seed and the step alone, so
    that a resumed run sees the same views.

    Args:
        transform: a callable, or several, one for each view. A transform of torchvision is called with each image as
            a PIL image, one of albumentations with `image=` an array; it returns an image, an array, a tensor, or a
            dict with "image". Any other callable is called with the batch (B, 3, H, W) uint8, a module of kornia with
            the batch in [0, 1], and returns one view (B, 3, h, w) or a list of views.
        per_sample: whether the callable takes one image at a time; None: by the library that it is from.
        mean, std: of the values that it returns, if it normalizes them; None: those of a `Normalize` in it, and without
            one the values must be in [0, 1], or uint8.
    """

    def __init__(
        self,
        transform: Callable[..., Any] | Sequence[Callable[..., Any]],
        *,
        per_sample: bool | None = None,
        mean: Triple | None = None,
        std: Triple | None = None,
    ) -> None:
        several: Any = transform if isinstance(transform, list | tuple) else [transform]
        self.transforms: list[Callable[..., Any]] = list(several)
        if not self.transforms or not all(map(callable, self.transforms)):
            raise TypeError(f"views are {transform!r}, expected a callable, or several")
        if (mean is None) != (std is None):
            raise ValueError(f"mean is {mean} and std is {std}, expected both or none")
        self.per_sample = _is_per_sample(self.transforms[0]) if per_sample is None else per_sample
        stated = (mean, std) if mean is not None and std is not None else find_normalize(self.transforms[0])
        self.normalized = stated is not None
        self.mean, self.std = stated or (IMAGENET_MEAN, IMAGENET_STD)
        self.count: int | None = len(self.transforms) if len(self.transforms) > 1 else None  # None: any number
        self.size: int | None = None  # of its images; None: that of the samples

    def __repr__(self) -> str:
        names = " and ".join(type(each).__name__ for each in self.transforms)
        return f"CustomViews({names}, {'each sample' if self.per_sample else 'a batch'})"

    def probe(self) -> None:
        """Find out how many views of which size the callable gives, from made-up images.

        Raises:
            ValueError: it failed, with its own message.
        """
        sizes = set()
        for side in _PROBED:
            made = torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8, generator=torch.Generator())
            try:
                with seeded(0, made.device):
                    found = self._called(self.transforms[0], made, 0, 0)
            except Exception as error:
                message = " ".join(str(error).split())[:200]
                raise ValueError(
                    f"the views {self!r} failed on images of {side} pixels: {type(error).__name__}: {message}"
                ) from error
            sizes |= {(view.shape[2], view.shape[3]) for view in found}
            if len(found) > 1 or isinstance(self.count, int):
                self.count = max(len(found), self.count or 0)
        if len(sizes) == 1 and len(set(*sizes)) == 1:
            self.size = int(next(iter(sizes))[0])

    def make(
        self, images: Tensor, recipes: Sequence[ImageView], *, seed: int, step: int, shard: Shard | None = None
    ) -> list[Tensor]:
        """Views of images (B, 3, H, W) uint8, each (B, 3, h, w) normalized, on their device.

        Args:
            recipes: one for each view, whose mean and deviation values in [0, 1] are normalized by.
            shard: of a batch that several processes share: views are those that one process would make of all.
        """
        whole = shard is not None and not self.per_sample  # a callable on a batch may look at all of it
        batch = shard.gather(images) if shard is not None and whole else images
        first = 0 if shard is None or whole else shard.first
        made: list[Tensor] = []
        count = len(recipes)
        with _restored(images.device):
            for number in range(count):
                if len(made) > number:  # one call gave several
                    continue
                transform = self.transforms[number % len(self.transforms)]
                _seed(_mixed(seed, step, number), images.device)
                made += self._called(transform, batch, first, _mixed(seed, step, number))
        if len(made) != count:
            raise ValueError(f"the views {self!r} are {len(made)}, expected {count}; set views.count")
        if shard is not None and whole:
            made = [shard.select(view) for view in made]
        return [self._finished(view, recipe).to(images.device) for view, recipe in zip(made, recipes, strict=True)]

    def _called(self, transform: Callable[..., Any], images: Tensor, first: int, seed: int) -> list[Tensor]:
        if not self.per_sample:
            given = transform(images / 255 if _is_kornia(transform) else images.clone())
            found = list(given) if isinstance(given, list | tuple) else [given]
        else:
            rows = enumerate(images, first)
            found = [torch.stack([self._of_sample(transform, x, _mixed(seed, row)) for row, x in rows])]
        for view in found:
            if not isinstance(view, Tensor) or view.ndim != 4 or view.shape[1] != 3:
                what = f"shape {tuple(view.shape)}" if isinstance(view, Tensor) else f"type {type(view).__name__}"
                raise ValueError(f"a view of {self!r} has {what}, expected a tensor (B, 3, h, w)")
        return found

    @staticmethod
    def _of_sample(transform: Callable[..., Any], image: Tensor, seed: int) -> Tensor:
        _seed(seed, torch.device("cpu"))
        pixels = image.permute(1, 2, 0).cpu().numpy()
        if "albumentations" in _module(transform):
            if hasattr(transform, "set_random_seed"):
                transform.set_random_seed(seed % (1 << 32))
            return as_tensor(transform(image=pixels.copy()))
        return as_tensor(transform(Image.fromarray(pixels)))

    def _finished(self, view: Tensor, recipe: ImageView) -> Tensor:
        x = view.float() / 255 if view.dtype == torch.uint8 else view.float()
        if self.normalized and view.dtype != torch.uint8:
            return x
        least, most = float(x.min()), float(x.max())
        if not (least >= -0.01 and most <= 1.01):
            raise ValueError(
                f"the views {self!r} have values from {least:.3g} to {most:.3g}, expected 0 to 1; if they are "
                "normalized, say how: views=nearfar.CustomViews(..., mean=..., std=...)"
            )
        return normalize(x, recipe.mean, recipe.std)


def as_recipes(views: CustomViews | None, size: int) -> list[ImageView]:
    """What is known of own views as recipes, for those who ask for their number, size and scale; None: not here."""
    view = simclr(size)[0]
    if views is not None:
        view = replace(view, mean=views.mean, std=views.std)
    return [view] * (2 if views is None or views.count is None else views.count)


def as_tensor(image: Any) -> Tensor:
    """(3, h, w) of what a transform returned: a tensor, a PIL image, an array (h, w, 3), or a dict of one."""
    if isinstance(image, Mapping):
        image = image["image"]
    if isinstance(image, Tensor):
        return image.as_subclass(Tensor)
    array = np.array(image.convert("RGB") if isinstance(image, Image.Image) else image)
    if array.ndim != 3:
        raise ValueError(f"a view has shape {array.shape}, expected (h, w, 3)")
    return torch.from_numpy(array if array.shape[0] == 3 and array.shape[2] != 3 else array.transpose(2, 0, 1).copy())


def find_normalize(transform: Any) -> tuple[Triple, Triple] | None:
    """Mean and deviation of a `Normalize` in a transform, if there is one."""
    if type(transform).__name__ == "Normalize":
        stated = getattr(transform, "flags", None) or vars(transform)  # the first of kornia
        if "mean" in stated and "std" in stated:
            return _triple(stated["mean"]), _triple(stated["std"])
    inside = getattr(transform, "transforms", None) or list(getattr(transform, "_modules", {}).values())
    found = (find_normalize(each) for each in inside if each is not transform)
    return next((each for each in found if each is not None), None)


def _triple(values: Any) -> Triple:
    """One number for each color; a single one is that of all."""
    found = torch.as_tensor(values, dtype=torch.float64).flatten().tolist()
    if len(found) not in (1, 3):
        raise ValueError(f"a Normalize of the views has {len(found)} values, expected 3, one for each color")
    red, green, blue = found * (3 // len(found))
    return red, green, blue


def _module(transform: Any) -> str:
    return str(getattr(transform, "__module__", "") or type(transform).__module__)


def _is_per_sample(transform: Any) -> bool:
    return _module(transform).startswith(PER_SAMPLE) or type(transform).__module__.startswith(PER_SAMPLE)


def _is_kornia(transform: Any) -> bool:
    """A module of kornia, or one that holds some: these take real numbers from 0 to 1 alone."""
    return isinstance(transform, nn.Module) and any(_module(each).startswith("kornia") for each in transform.modules())


def _mixed(*numbers: int) -> int:
    """One seed of several numbers."""
    text = "/".join(map(str, numbers))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def _seed(seed: int, device: torch.device) -> None:
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32))  # noqa: NPY002  what transforms of others draw from


@contextmanager
def _restored(device: torch.device) -> Iterator[None]:
    """Leave the random numbers of others as they were."""
    plain, wide = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(plain)
        np.random.set_state(wide)  # noqa: NPY002


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers of this seed inside, and those of others untouched."""
    with _restored(device):
        _seed(seed, device)
        yield
