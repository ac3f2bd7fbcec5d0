"""One image view: a recipe, the parameters drawn from it, and their application to a batch."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from nearfar.modalities.image.views.affine import affine, affine_matrix
from nearfar.modalities.image.views.arguments import check_images, check_size
from nearfar.modalities.image.views.blur import blur_by, half_kernel
from nearfar.modalities.image.views.color import (
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    luma,
    normalize,
    solarize,
    standardize,
)
from nearfar.modalities.image.views.crop import Crops, Interpolation, chunks, random_crop_boxes, sources
from nearfar.nn.arguments import check_probability, check_range
from nearfar.nn.scratch import Scratch, scratch_for, single_thread

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
VIEW_VALUES = 200_000  # floats of a chunk of views on the CPU: it and its temporaries stay in a core's cache


@dataclass(frozen=True)
class ImageViewParameters:
    """What was drawn for each of B samples; row i belongs to image i."""

    boxes: Tensor  # (B, 4) integers: top, left, height, width
    flip: Tensor  # (B,) booleans
    brightness: Tensor  # (B,) factors; 1 where the colours are left alone
    contrast: Tensor  # (B,)
    saturation: Tensor  # (B,)
    hue: Tensor  # (B,) shifts in turns; 0 where the colours are left alone
    grayscale: Tensor  # (B,) booleans
    blur: Tensor  # (B,) booleans
    sigma: Tensor  # (B,) in pixels
    solarize: Tensor  # (B,) booleans
    affine: Tensor  # (B, 2, 3); [[1, 0, 0], [0, 1, 0]] where the image stays in place
    quarter_turns: Tensor  # (B,) integers 0 to 3, counterclockwise

    def to(self, device: torch.device) -> "ImageViewParameters":
        return ImageViewParameters(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})

    def rows(self, start: int, stop: int) -> "ImageViewParameters":
        """The parameters of samples start to stop."""
        return ImageViewParameters(**{field.name: getattr(self, field.name)[start:stop] for field in fields(self)})


@dataclass(frozen=True, kw_only=True)
class ImageView:
    """The recipe of one view, in this order: crop, flip, quarter turns, affine, colour jitter, grayscale, blur,
    solarise, normalise.

    The defaults are SimCLR's at strength 1. Colour jitter is applied to a sample as a whole or not at all, always in
    the order brightness, contrast, saturation, hue (torchvision shuffles it), each factor uniform in
    [max(0, 1 - x), 1 + x], the hue's shift in [-x, x]. Everything is computed in float32 and never rounded to bytes.

    Attributes:
        size: pixels of a side of the view.
        crop_scale: range of the crop's area, as a part of the image's.
        crop_ratio: range of the crop's width over height.
        interpolation: how crops are resized, "bilinear" or "bicubic", both with antialiasing.
        flip, jitter, grayscale, blur, solarize, affine: probabilities; a flip mirrors left and right.
        quarter_turns: probability of 0, 1, 2 or 3 quarter turns, each as likely; 1 with flip 0.5 makes all eight ways
            to lay down a square picture equally likely, mirrored up and down among them.
        brightness, contrast, saturation, hue: strength of the jitter.
        blur_sigma: range of the Gaussian's deviation, in pixels of the view, uniform.
        blur_kernel: width of the Gaussian's window, as a part of `size`.
        solarize_threshold: in [0, 1]; pixels at or above it are inverted.
        turn: the affine map's largest angle in degrees, uniform either way.
        zoom: range of its magnification, whose logarithm is uniform.
        stretch: range of its change of width over height, whose logarithm is uniform.
        shear: its largest slant, in pixels aside for each pixel down, uniform either way.
        shift: its largest move along each axis, as a part of the side, uniform either way.
        standardize: normalise each image by its own mean and deviation instead of by `mean` and `std`.
        mean, std: of each channel; ImageNet's by default.

    Reference: Chen et al. 2020, appendix A, https://arxiv.org/abs/2002.05709
    """

    size: int
    crop_scale: tuple[float, float] = (0.08, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"
    flip: float = 0.5
    quarter_turns: float = 0.0
    jitter: float = 0.8
    brightness: float = 0.8
    contrast: float = 0.8
    saturation: float = 0.8
    hue: float = 0.2
    grayscale: float = 0.2
    blur: float = 0.5
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    blur_kernel: float = 0.1
    solarize: float = 0.0
    solarize_threshold: float = 0.5
    affine: float = 0.0
    turn: float = 12.0
    zoom: tuple[float, float] = (0.8, 1.25)
    stretch: tuple[float, float] = (3 / 4, 4 / 3)
    shear: float = 0.25
    shift: float = 0.25
    standardize: bool = False
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def __post_init__(self) -> None:
        check_size(self.size)
        if self.interpolation not in ("bilinear", "bicubic"):
            raise ValueError(f"interpolation is {self.interpolation!r}, expected 'bilinear' or 'bicubic'")
        check_range("crop_scale", self.crop_scale, most=1)
        check_range("crop_ratio", self.crop_ratio)
        for name in ("blur_sigma", "zoom", "stretch"):
            check_range(name, getattr(self, name))
        for name in ("flip", "quarter_turns", "jitter", "grayscale", "blur", "solarize", "affine"):
            check_probability(name, getattr(self, name))
        for name in ("brightness", "contrast", "saturation", "turn", "shear", "shift"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected at least 0")
        if not 0 <= self.hue <= 0.5:
            raise ValueError(f"hue is {self.hue!r}, expected 0 to 0.5 of a turn")
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise ValueError(f"mean is {self.mean!r} and std {self.std!r}, expected three numbers each, std above 0")

    @property
    def blur_radius(self) -> int:
        """Half of the blur's window in pixels, the centre left out: 11 at 224 pixels, SimCLR's and BYOL's 23 wide."""
        return int(self.size * self.blur_kernel) // 2

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """A random view of each image.

        Args:
            images: (B, 3, H, W), uint8 or floating point in [0, 1].
            generator: the only source of randomness; one on the CPU gives the same views on every device.

        Returns:
            (B, 3, size, size), float32, normalised by `mean` and `std`, on the images' device.
        """
        check_images(images)
        return self.apply(images, self.draw(len(images), images.shape[2], images.shape[3], generator))

    def draw(self, count: int, height: int, width: int, generator: torch.Generator) -> ImageViewParameters:
        """The parameters of `count` views of images of this height and width, on the generator's device."""
        boxes = random_crop_boxes(count, height, width, generator, scale=self.crop_scale, ratio=self.crop_ratio)
        chances = torch.rand(5, count, generator=generator, device=generator.device)
        amounts = torch.rand(5, count, generator=generator, device=generator.device)
        jittered = chances[0] < self.jitter

        def factor(amount: Tensor, strength: float) -> Tensor:
            low, high = max(0.0, 1 - strength), 1 + strength
            return torch.where(jittered, low + (high - low) * amount, 1.0)

        return ImageViewParameters(
            boxes=boxes,
            flip=chances[1] < self.flip,
            brightness=factor(amounts[0], self.brightness),
            contrast=factor(amounts[1], self.contrast),
            saturation=factor(amounts[2], self.saturation),
            hue=torch.where(jittered, self.hue * (2 * amounts[3] - 1), 0.0),
            grayscale=chances[2] < self.grayscale,
            blur=chances[3] < self.blur,
            sigma=self.blur_sigma[0] + (self.blur_sigma[1] - self.blur_sigma[0]) * amounts[4],
            solarize=chances[4] < self.solarize,
            affine=self._draw_affine(count, generator),
            quarter_turns=self._draw_quarter_turns(count, generator),
        )

    def _draw_affine(self, count: int, generator: torch.Generator) -> Tensor:
        """(B, 2, 3). Nothing is drawn where nothing moves: views without it stay the same from the same generator."""
        still = torch.eye(2, 3, device=generator.device).expand(count, 2, 3)
        if self.affine == 0:
            return still
        chance, *amounts = torch.rand(7, count, generator=generator, device=generator.device)

        def either_way(amount: Tensor, most: float) -> Tensor:
            return most * (2 * amount - 1)

        def between(amount: Tensor, low: float, high: float) -> Tensor:
            return low * (high / low) ** amount

        moved = affine_matrix(
            either_way(amounts[0], self.turn),
            between(amounts[1], *self.zoom),
            between(amounts[2], *self.stretch),
            either_way(amounts[3], self.shear),
            either_way(torch.stack(amounts[4:]), self.shift),
        )
        return torch.where((chance < self.affine)[:, None, None], moved, still)

    def _draw_quarter_turns(self, count: int, generator: torch.Generator) -> Tensor:
        """(B,) integers. Nothing is drawn where nothing turns, as in `_draw_affine`."""
        if self.quarter_turns == 0:
            return torch.zeros(count, dtype=torch.long, device=generator.device)
        chance, amount = torch.rand(2, count, generator=generator, device=generator.device)
        return torch.where(chance < self.quarter_turns, (4 * amount).long(), 0)

    def apply(self, images: Tensor, drawn: ImageViewParameters, *, out: Tensor | None = None) -> Tensor:
        """The views that these parameters make of these images, written to `out` if given; see `__call__`."""
        check_images(images)
        views = self.room(images, out)
        apply_views(images, [self], [drawn], [views])
        return views

    def room(self, images: Tensor, out: Tensor | None = None) -> Tensor:
        """Memory for the views of these images: `out`, if it fits, or new."""
        shape = (len(images), 3, self.size, self.size)
        views = torch.empty(shape, device=images.device) if out is None else out
        if views.shape != shape or views.dtype != torch.float32 or views.device != images.device:
            raise ValueError(
                f"out is {tuple(views.shape)}, {views.dtype}, on {views.device}, "
                f"expected {shape}, torch.float32, on {images.device}"
            )
        return views


@dataclass(frozen=True)
class _Planned:
    """A view whose parameters are drawn, ready to be made of a few images at a time."""

    view: ImageView
    crops: Crops
    factors: Tensor  # (5, B, 1, 1, 1): contrast, saturation, hue, 1 or 0 for colour or gray, threshold
    kernels: Tensor  # (B, radius + 1)
    drawn: ImageViewParameters
    on_host: ImageViewParameters  # as drawn: the images that some step is for are found without asking a device

    @classmethod
    def of(cls, view: ImageView, images: Tensor, drawn: ImageViewParameters) -> "_Planned":
        on_host, drawn = drawn, drawn.to(images.device)
        colored = (~drawn.grayscale).float()  # 0 or 1, of which lerp is exact
        threshold = torch.where(drawn.solarize, view.solarize_threshold, 2.0)  # 2: nothing is inverted
        factors = torch.stack([drawn.contrast, drawn.saturation, drawn.hue, colored, threshold])
        return cls(
            view=view,
            crops=Crops.of(
                images, drawn.boxes, view.size, drawn.flip, drawn.brightness, interpolation=view.interpolation
            ),
            factors=factors.view(5, -1, 1, 1, 1),
            kernels=half_kernel(drawn.sigma[:, None], view.blur_radius),
            drawn=drawn,
            on_host=on_host,
        )

    def make(self, source: Tensor, first: int, last: int, *, out: Tensor, scratch: Scratch) -> None:
        """The views first to last, whose images are the `source`, in float32."""
        view, drawn = self.view, self.drawn
        contrast, saturation, hue, colored, threshold = self.factors[:, first:last]
        x = scratch.take("view", (last - first, 3, view.size, view.size), out)
        self.crops.cut(source, first, last, out=x, scratch=scratch)
        if view.interpolation == "bicubic":  # overshoots; here times the brightness
            torch.minimum(x.clamp_(min=0), drawn.brightness[first:last].view(-1, 1, 1, 1), out=x)
        if view.quarter_turns > 0:
            rotate_by_quarters(x, self.on_host.quarter_turns[first:last])
        if view.affine > 0:
            affine(x, drawn.affine[first:last], out=x)
        if view.jitter > 0:
            x.clamp_(max=1)  # with the crop's gain this is adjust_brightness
            adjust_contrast(x, contrast, out=x)
            adjust_saturation(x, saturation, out=x, scratch=scratch)
            adjust_hue(x, hue, out=x, scratch=scratch)
        if view.grayscale > 0:
            torch.lerp(luma(x, scratch), x, colored, out=x)
        if view.blur > 0 and view.blur_radius > 0:
            of = self.on_host.blur[first:last].nonzero()[:, 0].to(x.device, non_blocking=True)
            some = scratch.take("blurred", (len(of), *x.shape[1:]), x)
            x.index_copy_(0, of, blur_by(x, self.kernels[first + of], of, out=some, scratch=scratch))
        if view.solarize > 0:
            solarize(x, threshold, out=x)
        if view.standardize:
            standardize(x, out=out)
        else:
            normalize(x, view.mean, view.std, out=out)


def rotate_by_quarters(x: Tensor, turns: Tensor) -> Tensor:
    """Turn each of (B, C, S, S) by its number of quarter turns, counterclockwise, in place: every pixel is kept.

    >>> rotate_by_quarters(torch.tensor([[[[1, 2], [3, 4]]]]), torch.tensor([1]))
    tensor([[[[2, 4],
              [1, 3]]]])
    """
    for number in (1, 2, 3):
        of = (turns == number).nonzero()[:, 0].to(x.device, non_blocking=True)
        x.index_copy_(0, of, x[of].rot90(number, (2, 3)))
    return x


@torch.no_grad()
def apply_views(
    images: Tensor, views: Sequence[ImageView], drawn: Sequence[ImageViewParameters], out: Sequence[Tensor]
) -> None:
    """All views of a batch, each by its own parameters, written to `out`.

    On the CPU a few images at a time: they are made floating point once for all views, and stay in the core's cache
    from one view to the next.
    """
    scratch = scratch_for(images)
    with single_thread(images):
        planned = [_Planned.of(view, images, d) for view, d in zip(views, drawn, strict=True)]
        for first, source in sources(images, max((view.size for view in views), default=1), scratch):
            for plan, o in zip(planned, out, strict=True):
                for a, b in chunks(source, 3 * plan.view.size**2, VIEW_VALUES):
                    plan.make(source[a:b], first + a, first + b, out=o[first + a : first + b], scratch=scratch)
