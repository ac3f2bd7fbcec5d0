"""The one door to torchvision; import it before torchvision, timm, torchmetrics or lightning."""

from nearfar._torchvision_operators import COMPILED as COMPILED
from nearfar._torchvision_operators import allow_python_nms
from nearfar._torchvision_operators import nms as nms

import torchvision  # isort: skip  # after the operators

allow_python_nms(torchvision)
