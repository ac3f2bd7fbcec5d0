"""Views of images for contrastive learning: whole batches, on the images' device, from an explicit generator."""

from nearfar.views.affine import affine, affine_matrix
from nearfar.views.blur import gaussian_blur
from nearfar.views.colour import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    normalize,
    solarize,
    standardize,
    to_grayscale,
)
from nearfar.views.crop import crop_resize, random_crop_boxes
from nearfar.views.grid import view_grid
from nearfar.views.image import Drawn, ImageView
from nearfar.views.prepare import Preparation, resize_eval
from nearfar.views.presets import (
    PRESETS,
    byol,
    clip,
    clip_few,
    dino,
    instdisc,
    make_views,
    moco_v1,
    moco_v2,
    moco_v3,
    shapes,
    simclr,
)
from nearfar.views.text import mask_tokens

__all__ = [
    "PRESETS",
    "Drawn",
    "ImageView",
    "Preparation",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "affine",
    "affine_matrix",
    "byol",
    "clip",
    "clip_few",
    "crop_resize",
    "dino",
    "gaussian_blur",
    "instdisc",
    "make_views",
    "mask_tokens",
    "moco_v1",
    "moco_v2",
    "moco_v3",
    "normalize",
    "random_crop_boxes",
    "resize_eval",
    "shapes",
    "simclr",
    "solarize",
    "standardize",
    "to_grayscale",
    "view_grid",
]
