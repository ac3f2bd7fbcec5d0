"""The views of each paper by name, `shapes` for what no paper has, and how a training step makes its views.

A preset gives a tuple of views, one for each crop of an image; `dataclasses.replace(view, flip=0.0)` changes one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from nearfar.modalities.image.views.arguments import check_images
from nearfar.modalities.image.views.factors import FACTORS
from nearfar.modalities.image.views.view import ImageView, ImageViewParameters, apply_views
from nearfar.nn.seeding import seeded_generator
from nearfar.nn.shard import Shard

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
LOCAL_SCALE = (0.05, 0.4)  # of the area of the image: DINO's for convolutional networks


def simclr(size: int, *, strength: float | None = None, blur: float | None = None) -> tuple[ImageView, ...]:
    """SimCLR's two equal views.

    Args:
        strength: of the colour jitter; the paper's 1 for ImageNet and 0.5 for CIFAR, here up to 64 pixels.
        blur: probability; the paper's 0.5 for ImageNet and 0 for CIFAR, here up to 32 pixels.

    Reference: Chen et al. 2020, appendices A and B.9, https://arxiv.org/abs/2002.05709
    """
    s = (0.5 if size <= 64 else 1.0) if strength is None else strength
    p = (0.0 if size <= 32 else 0.5) if blur is None else blur
    view = ImageView(size=size, brightness=0.8 * s, contrast=0.8 * s, saturation=0.8 * s, hue=0.2 * s, blur=p)
    return view, view


def photos(size: int) -> tuple[ImageView, ...]:
    """Two equal views for short runs: SimCLR's colors for small images, crops from a fifth of the image, no blur.

    No paper's: at equal seconds larger crops learn a little more, and a blur costs time.
    """
    view = ImageView(size=size, crop_scale=(0.2, 1.0), blur=0.0, **FACTORS["color"]["vary"])
    return view, view


def instdisc(size: int, *, count: int = 1) -> tuple[ImageView, ...]:
    """Instance discrimination's view: no blur, colours jittered always.

    Grayscale comes after the jitter, not before it as in the authors' code: equal but for values cut off at 0 and 1.

    Args:
        count: of equal views; the method needs one.

    Reference: Wu et al. 2018, https://arxiv.org/abs/1805.01978
    """
    view = ImageView(
        size=size, crop_scale=(0.2, 1.0), jitter=1.0, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.4, blur=0.0
    )
    return (view,) * count


def cmc(size: int) -> tuple[ImageView, ...]:
    """CMC's view of an image, whose colors are told from its brightness: no color is changed.

    Reference: Tian et al. 2020, https://arxiv.org/abs/1906.05849
    """
    return (ImageView(size=size, crop_scale=(0.2, 1.0), jitter=0.0, grayscale=0.0, blur=0.0),)


def moco_v1(size: int) -> tuple[ImageView, ...]:
    """MoCo's two equal views, which are those of instance discrimination.

    Reference: He et al. 2020, section 3.3, https://arxiv.org/abs/1911.05722
    """
    return instdisc(size, count=2)


def moco_v2(size: int) -> tuple[ImageView, ...]:
    """MoCo v2's two equal views, SimSiam's too: SimCLR's blur, weaker colours, larger crops.

    Reference: Chen et al. 2020, https://arxiv.org/abs/2003.04297
    """
    view = ImageView(size=size, crop_scale=(0.2, 1.0), brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)
    return view, view


def supcon(size: int) -> tuple[ImageView, ...]:
    """SupCon's two equal views in its authors' code: MoCo v2's, never blurred.

    Reference: Khosla et al. 2020, https://arxiv.org/abs/2004.11362
    """
    view = replace(moco_v2(size)[0], blur=0.0)
    return view, view


def byol(size: int) -> tuple[ImageView, ...]:
    """BYOL's two views, the first always blurred, the second seldom blurred and sometimes solarised.

    Barlow Twins and VICReg use them too.

    Reference: Grill et al. 2020, table 6, https://arxiv.org/abs/2006.07733
    """
    view = ImageView(size=size, brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)
    return replace(view, blur=1.0), replace(view, blur=0.1, solarize=0.2)


def moco_v3(size: int) -> tuple[ImageView, ...]:
    """MoCo v3's two views for ResNet: BYOL's, with larger crops.

    Reference: Chen et al. 2021, section 5, https://arxiv.org/abs/2104.02057
    """
    first, second = byol(size)
    return replace(first, crop_scale=(0.2, 1.0)), replace(second, crop_scale=(0.2, 1.0))


def clip(size: int) -> tuple[ImageView, ...]:
    """CLIP's view of an image, whose other view is its caption: nearly all of it, and nothing else changed.

    Reference: Radford et al. 2021, section 2.4, https://arxiv.org/abs/2103.00020; the crop's area is open_clip's.
    """
    return (ImageView(size=size, crop_scale=(0.9, 1.0), flip=0.0, jitter=0.0, grayscale=0.0, blur=0.0),)


def openai_clip(size: int) -> tuple[ImageView, ...]:
    """As `clip`, resized bicubically and normalized by the channel statistics of the models that OpenAI published."""
    return (replace(clip(size)[0], interpolation="bicubic", mean=CLIP_MEAN, std=CLIP_STD),)


def clip_few(size: int) -> tuple[ImageView, ...]:
    """As `clip` where there are few images, drawings above all: half of it at least, moved, in other shades.

    No paper's. Some thousand pairs in CLIP's own view are learned by heart; what a caption says is still true of these.
    """
    view = ImageView(
        size=size,
        crop_scale=(0.5, 1.0),
        crop_ratio=(4 / 5, 5 / 4),
        flip=0.0,
        brightness=0.4,
        contrast=0.4,
        saturation=0.4,
        hue=0.05,
        grayscale=0.1,
        blur=0.3,
        affine=0.8,
        zoom=(0.85, 1.2),
        shear=0.1,
        shift=0.1,
    )
    return (view,)


def dino(size: int, *, local_crops: int = 8, local_size: int | None = None) -> tuple[ImageView, ...]:
    """DINO's multi-crop: BYOL's two views of large crops, and small views of small crops.

    Crops are resized bilinearly, where the authors' code is bicubic.

    Args:
        local_crops: number of small views.
        local_size: their side; the paper's 96 for 224, and about that proportion (`local_side`).

    Reference: Caron et al. 2021, section 3.1, https://arxiv.org/abs/2104.14294
    """
    first, second = byol(size)
    large = replace(first, crop_scale=(0.4, 1.0)), replace(second, crop_scale=(0.4, 1.0))
    return *large, *[local_view(first, local_size)] * local_crops


def swav(size: int, *, local_crops: int = 6) -> tuple[ImageView, ...]:
    """SwAV's multi-crop: two views as SimCLR's, of larger crops, and small views of small crops.

    Reference: Caron et al. 2020, section 3.2, https://arxiv.org/abs/2006.09882; scales as in the authors' code
    """
    first, second = (replace(view, crop_scale=(0.14, 1.0)) for view in simclr(size))
    return first, second, *[replace(local_view(first), crop_scale=(0.05, 0.14))] * local_crops


def local_view(view: ImageView, size: int | None = None) -> ImageView:
    """A view as DINO's local crops are: a small part of the image in few pixels, otherwise as the given one.

    Blurred half of the time at most: the first of BYOL's two views always is.

    Args:
        size: its side; None: `local_side`.

    Reference: Caron et al. 2021, section 3.1, https://arxiv.org/abs/2104.14294
    """
    if not crops(view):
        raise ValueError("--views.local needs views that crop, and this preset does not; choose another --views.preset")
    side = local_side(view.size) if size is None else size
    return replace(view, size=side, crop_scale=LOCAL_SCALE, blur=min(view.blur, 0.5))


def crops(view: ImageView) -> bool:
    """Whether a view shows a part of the image."""
    return view.crop_scale != (1.0, 1.0)


def local_side(size: int) -> int:
    """Pixels of a side of local crops: 96 for 224 as in the paper, and about so for others, in multiples of 8.

    >>> [local_side(size) for size in (224, 96, 64, 32, 12)]
    [96, 40, 24, 16, 6]
    """
    return 8 * max(1, round(size * 96 / 224 / 8)) if size >= 16 else max(1, size // 2)


def split_local(views: Sequence[ImageView]) -> tuple[list[ImageView], list[ImageView]]:
    """Those of full size, and the local ones, which are smaller."""
    size = views[0].size
    return [view for view in views if view.size == size], [view for view in views if view.size < size]


def shapes(size: int) -> tuple[ImageView, ...]:
    """Two equal views for pictures whose shapes matter and whose colours do not, such as letters and signs.

    No paper's. A letter is still itself in another colour, bright on dark or dark on bright, a little turned, slanted,
    larger or elsewhere, but not when it is mirrored or half cut off. So images are gray and standardised, always, and
    evaluated so; half of the views are negatives; and an affine map takes the place of crop and flip.
    """
    view = ImageView(
        size=size,
        crop_scale=(1.0, 1.0),
        crop_ratio=(1.0, 1.0),
        flip=0.0,
        affine=1.0,
        jitter=0.0,
        grayscale=1.0,
        blur=0.0,
        solarize=0.5,
        solarize_threshold=0.0,
        standardize=True,
    )
    return view, view


def simclr_bicubic(size: int) -> tuple[ImageView, ...]:
    """SimCLR's two views, resized bicubically as in its authors' code."""
    return tuple(replace(view, interpolation="bicubic") for view in simclr(size))


def byol_bicubic(size: int) -> tuple[ImageView, ...]:
    """BYOL's two views, resized bicubically as in the code of BYOL, Barlow Twins and VICReg."""
    return tuple(replace(view, interpolation="bicubic") for view in byol(size))


PRESETS: dict[str, Callable[..., tuple[ImageView, ...]]] = {
    preset.__name__: preset
    for preset in (
        byol,
        byol_bicubic,
        clip,
        clip_few,
        cmc,
        dino,
        instdisc,
        moco_v1,
        moco_v2,
        moco_v3,
        openai_clip,
        photos,
        shapes,
        simclr,
        simclr_bicubic,
        supcon,
        swav,
    )
}


def make_views(
    images: Tensor,
    views: Sequence[ImageView],
    *,
    seed: int,
    step: int,
    out: Sequence[Tensor] | None = None,
    shard: Shard | None = None,
) -> list[Tensor]:
    """The views of one training step: the same seed and step always give the same, on every device.

    Each view has a generator of its own, so a view does not change when another is added.

    Args:
        images: (B, 3, H, W), uint8 or floating point in [0, 1].
        views: the recipes.
        seed: of the run.
        step: of the training.
        out: where to write, such as the views of an earlier step that are no longer needed: large memory fresh from
            the system is a good part of the cost.
        shard: of a batch that several processes share: the views are those that one process would make of all.

    Returns:
        For each recipe (B, 3, size, size), float32, normalised, on the images' device.
    """
    check_images(images)
    if out is not None and len(out) != len(views):
        raise ValueError(f"out has {len(out)} tensors for {len(views)} views, expected one for each")
    drawn = draw_views(images, views, seed=seed, step=step, shard=shard)
    made = [view.room(images, None if out is None else out[i]) for i, view in enumerate(views)]
    apply_views(images, views, drawn, made)
    return made


def draw_views(
    images: Tensor, views: Sequence[ImageView], *, seed: int, step: int, shard: Shard | None = None
) -> list[ImageViewParameters]:
    """All that is chance in `make_views`, for those who apply it to a few rows at a time."""
    height, width = images.shape[2:]
    count = len(images) if shard is None else shard.total
    drawn = [v.draw(count, height, width, seeded_generator(seed, step, i)) for i, v in enumerate(views)]
    return drawn if shard is None else [d.rows(shard.first, shard.first + shard.count) for d in drawn]
