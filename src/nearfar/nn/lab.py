"""Colors as lightness and two opponent axes: CIE Lab."""

import torch
from torch import Tensor

from nearfar.losses.engine.precision import no_autocast

LAB_CENTER, LAB_SCALE = (50.0, 6.025, -6.6895), (50.0, 92.208, 101.1675)  # middle and half range of sRGB's L, a and b
_XYZ = ((0.412453, 0.357580, 0.180423), (0.212671, 0.715160, 0.072169), (0.019334, 0.119193, 0.950227))
_WHITE = (0.95047, 1.0, 1.08883)  # D65
_LINEAR = 0.008856  # below this part of the white the cube root becomes a line


def rgb_to_lab(x: Tensor) -> Tensor:
    """(B, 3, H, W) sRGB in [0, 1] to Lab: L from 0 to 100, a from -86 to 98, b from -108 to 94.

    In float32 at least: cube roots of half precision are coarse.

    Reference: CIE 15:2004, with sRGB's matrix and white D65 (ITU-R BT.709)

    >>> [round(value, 1) for value in rgb_to_lab(torch.tensor([1.0, 0.0, 0.0])[None, :, None, None]).flatten().tolist()]
    [53.2, 80.1, 67.2]
    """
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    light = torch.where(x > 0.04045, ((x.clamp(min=0.04045) + 0.055) / 1.055) ** 2.4, x / 12.92)
    matrix = x.new_tensor(_XYZ) / x.new_tensor(_WHITE)[:, None]
    with no_autocast(x):
        xyz = torch.einsum("oc,bchw->bohw", matrix, light)
    f = torch.where(xyz > _LINEAR, xyz.clamp(min=_LINEAR) ** (1 / 3), 7.787 * xyz + 16 / 116)
    return torch.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], 1)
