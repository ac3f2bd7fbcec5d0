"""Image encoders by name: small ones of our own for a CPU, and all that timm, torchvision and transformers have."""

import difflib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.modalities.image.quick_net import QuickNet
from nearfar.nn.sequence import PRESETS as SEQUENCE
from nearfar.weights.files import read_tensors
from nearfar.weights.huggingface import TRANSFORMERS, quiet_hub
from nearfar.weights.load import fill, stated_card, weights_file
from nearfar.weights.names import WeightsName, parse_name

SMALL = 64  # up to this many pixels a ResNet keeps its resolution in the stem
TINY = {  # the stem's width, then width and stride of each block; multiply-adds of a 32 × 32 image
    "micro": (32, ((64, 2), (128, 2), (256, 2))),  # 11 M
    "tiny": (32, ((32, 1), (64, 2), (128, 2), (256, 2))),  # 16 M
    "tiny-wide": (64, ((64, 1), (128, 2), (256, 2), (512, 2))),  # 63 M
}
STROKES = ((32, 2), (64, 2), (64, 1), (256, 2))  # width and stride of each layer; 7 M
OWN = (*TINY, "quick", "strokes")
USUAL_SIZES = (224, 256, 299, 384)  # pixels that published networks take
_CANNOT_TAKE = (AssertionError, RuntimeError, ValueError, ZeroDivisionError)  # what networks raise for a wrong size


def backbone(
    name: str,
    *,
    size: int = 32,
    pretrained: bool = False,
    weights: str | Path | None = None,
    published_stem: bool | None = None,
    any_size: bool = False,
) -> nn.Module:
    """An encoder of images x (B, 3, H, W) to pooled features h (B, F), with F in its `num_features`.

    Args:
        name: "quick", "micro", "tiny", "tiny-wide" or "strokes", which train on a CPU; a name of timm ("resnet18",
            "vit_tiny_patch16_224"); one of torchvision ("torchvision:resnet18"); or "transformers:" and a local folder
            or a name of the Hugging Face hub.
        size: pixels of the images' side. Up to 64, a ResNet that is trained from scratch gets SimCLR's stem for
            CIFAR: a 3 × 3 convolution of stride 1, no pooling (https://arxiv.org/abs/2002.05709, B.9).
        pretrained: with the weights that the library publishes; needs a network once, keeps the published stem.
        weights: where the weights are, as `nearfar.weights.parse_name` takes it; a file may have any usual layout,
            `network.loaded` then says what was found. The file decides on the stem.
        published_stem: keep the published stem, or have the small one; None: as the weights have it, else by the size.
        any_size: take images of other sizes, too: position embeddings are interpolated, where timm can.
    """
    if pretrained and weights is not None:
        raise ValueError(f"pretrained is True and weights is {str(weights)!r}, expected one of them")
    start = None if weights is None else parse_name(weights)
    if start is not None and published_backbone(start) == name:
        start, pretrained = None, True
    if start is not None and start.kind == "folder" and published_stem is None:
        published_stem = stated_stem(stated_card(Path(start.name)))
    network = _made(name, size, pretrained, any_size)
    if name not in OWN:
        small = size <= SMALL and not pretrained and start is None if published_stem is None else not published_stem
        _set_stem(network, small)
        _count_features(network, size, name)
    if start is not None:
        _fill(network, start, name, stem_given=published_stem is not None)
    elif pretrained:
        setattr(network, "loaded", f"published weights of {name}")  # noqa: B010, which torch's annotation refuses
    return network


def stated_stem(card: Mapping[str, Any]) -> bool:
    """Whether the network of a run has the published stem, as its card says.

    >>> stated_stem({"image_size": 32}), stated_stem({"image_size": 32, "pretrained": True})
    (False, True)
    """
    side = card.get("image_size")
    by_size = card.get("pretrained") is True or (isinstance(side, int) and side > SMALL)
    return bool(card.get("published_stem", by_size))


def published_backbone(start: WeightsName) -> str | None:
    """The backbone whose published weights a name stands for; None: they are in a file.

    >>> published_backbone(parse_name("timm:resnet18")), published_backbone(parse_name("torchvision:resnet18"))
    ('resnet18', 'torchvision:resnet18')
    """
    if start.file is not None or start.kind not in ("timm", "torchvision", "hf"):
        return None
    return {"timm": "", "hf": TRANSFORMERS, "torchvision": "torchvision:"}[start.kind] + start.name


def _made(name: str, size: int, pretrained: bool, any_size: bool) -> nn.Module:
    if name in OWN:
        if pretrained:
            raise ValueError(f"there are no pretrained weights of {name!r}; give a file of your own as weights")
        return _own(name, size)
    if name.startswith("torchvision:"):
        return _from_torchvision(name.removeprefix("torchvision:"), pretrained)
    if name.startswith(TRANSFORMERS):
        from nearfar.modalities.image.huggingface import HuggingFaceImages

        return HuggingFaceImages(name.removeprefix(TRANSFORMERS), pretrained=pretrained)
    return _from_timm(name, size, pretrained, any_size)


def _fill(network: nn.Module, start: WeightsName, name: str, *, stem_given: bool) -> None:
    """The weights of another name or of a file into the network; a file of a small stem gives it one."""
    published, file = published_backbone(start), weights_file(start)
    if published is None and file is None:
        raise ValueError(f"the weights {start} are not of the backbone {name!r}; leave --backbone out, or the weights")
    source = str(file) if start.kind in ("file", "folder") else str(start)
    tensors: Mapping[str, Tensor] = (
        read_tensors(file) if file is not None else backbone(str(published), size=224, pretrained=True).state_dict()
    )
    try:
        fit = fill(network, tensors, name, source)
    except ValueError as misfit:
        if stem_given or not _set_stem(network, small=True):
            raise
        try:
            fit = fill(network, tensors, name, source)
        except ValueError:
            raise misfit from None
    setattr(network, "loaded", f"{source}: {fit.summary()}")  # noqa: B010


def check_size_of_input(network: nn.Module, size: int, name: str) -> None:
    """Refuse a backbone that cannot take images of that side."""
    try:
        _features_at(network, size)
    except _CANNOT_TAKE as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the backbone {name!r} cannot take views of {size} pixels ({reason}); set --views.local 0, leave "
            "out --views.size, or choose another backbone"
        ) from None


def _own(name: str, size: int) -> nn.Module:
    if name == "quick":
        return QuickNet(size)
    return Strokes(STROKES) if name == "strokes" else TinyResNet(*TINY[name])


class TinyResNet(nn.Module):
    """A ResNet of one basic block per stage whose stem halves the image at once: most of a ResNet for little.

    Shortcuts that change size average before they project, and the last batch-norm of a block starts at zero,
    both after https://arxiv.org/abs/1812.01187.
    """

    def __init__(self, stem: int, stages: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, stem, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(stem)
        widths = [stem, *(width for width, _ in stages)]
        self.blocks = nn.Sequential(*(_Block(widths[i], *stage) for i, stage in enumerate(stages)))
        self.num_features = widths[-1]
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)), inplace=True)
        h: Tensor = self.blocks(x).mean((2, 3))  # (B, F)
        return h


class Strokes(nn.Module):
    """A few convolutions in a row and the largest answer of each at any place: for letters, signs and drawings.

    Small, and quick to learn: nothing is residual, so no block begins as an identity as those of `TinyResNet` do.
    """

    def __init__(self, layers: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        width_in = 3
        for i, (width, stride) in enumerate(layers):
            kernel = 5 if i == 0 else 3
            parts += [
                nn.Conv2d(width_in, width, kernel, stride=stride, padding=kernel // 2, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            width_in = width
        self.layers = nn.Sequential(*parts)
        self.num_features = width_in

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.layers(x).amax((2, 3))  # (B, F)
        return h


class _Block(nn.Module):
    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        nn.init.zeros_(self.norm2.weight)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or width_in != width:
            pool = nn.AvgPool2d(stride, ceil_mode=True, count_include_pad=False) if stride > 1 else nn.Identity()
            project = nn.Conv2d(width_in, width, 1, bias=False)
            self.shortcut = nn.Sequential(pool, project, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x), inplace=True)


def _from_timm(name: str, size: int, pretrained: bool, any_size: bool = False) -> nn.Module:
    from nearfar import _torchvision  # noqa: F401, before timm

    import timm  # isort: skip

    if not timm.is_model(name):
        raise ValueError(_unknown(name, [*OWN, *timm.list_models()]))
    options: dict[str, Any] = {"pretrained": pretrained, "num_classes": 0}

    def make() -> nn.Module:
        # Only networks with position embeddings ask for the size.
        sized: list[dict[str, Any]] = [{"img_size": size}, {}]
        if any_size:
            sized.insert(0, {"img_size": size, "dynamic_img_size": True})
        for more in sized[:-1]:
            with suppress(TypeError):
                network: nn.Module = timm.create_model(name, **options, **more)
                return network
        network = timm.create_model(name, **options)
        return network  # noqa: RET504, for its type

    return _fetched(make, name, pretrained)


def _from_torchvision(name: str, pretrained: bool) -> nn.Module:
    from nearfar import _torchvision  # noqa: F401, before torchvision

    from torchvision import models  # isort: skip

    known = models.list_models(models)
    if name not in known:
        raise ValueError(_unknown(f"torchvision:{name}", [f"torchvision:{n}" for n in known]))
    network = _fetched(lambda: models.get_model(name, weights="DEFAULT" if pretrained else None), name, pretrained)
    for path in [n for n, module in network.named_modules() if isinstance(module, nn.Linear)][-1:]:  # the classifier
        parent, _, child = path.rpartition(".")
        setattr(network.get_submodule(parent), child, nn.Identity())
    return network


def _unknown(name: str, known: list[str]) -> str:
    if name in SEQUENCE or name.startswith("audio-"):
        kind = "sound" if name.startswith(("audio-", "cpc-16k", "cpc-8k")) else "series"
        return f"the backbone {name!r} is not of images; if your data are {kind}, say --modality {kind}"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"there is no backbone {name!r}; the nearest known is {near[0]!r}"


def _fetched(make: Callable[[], nn.Module], name: str, pretrained: bool) -> nn.Module:
    try:
        with quiet_hub():
            return make()
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"the pretrained weights of {name!r} could not be fetched ({reason}); give a local file as weights"
        ) from error


def _count_features(network: nn.Module, size: int, name: str) -> None:
    """Give it `num_features` as what really comes out, and refuse a size that it cannot take."""
    try:
        h = _features_at(network, size)
    except _CANNOT_TAKE as error:
        if any(p.is_meta for p in network.parameters()):
            raise
        reason = " ".join(str(error).split())[:200]
        sizes = (getattr(network, "image_size", None), *USUAL_SIZES)
        fit = next((each for each in sizes if isinstance(each, int) and each != size and _takes(network, each)), None)
        way_out = "choose another backbone or --image-size" if fit is None else f"set --image-size {fit}"
        raise ValueError(f"the backbone {name!r} cannot take images of {size} pixels ({reason}); {way_out}") from None
    if not isinstance(h, Tensor) or h.ndim != 2:
        raise ValueError(f"{type(network).__name__} does not give pooled features (B, F); choose another backbone")
    setattr(network, "num_features", h.shape[1])  # noqa: B010, an int, which torch's annotation refuses


def _features_at(network: nn.Module, size: int) -> Any:
    """What it makes of one image of that side, in evaluation mode."""
    training = network.training
    try:
        with torch.no_grad():
            return network.eval()(torch.zeros(1, 3, size, size))
    finally:
        network.train(training)


def _takes(network: nn.Module, size: int) -> bool:
    with suppress(*_CANNOT_TAKE):
        _features_at(network, size)
        return True
    return False


def _set_stem(network: nn.Module, small: bool) -> bool:
    """Give a ResNet a stem without its two halvings, if asked to; whether the network can have one.

    Other networks are left as they are. `network.published_stem` says what it has.
    """
    stem, pool = getattr(network, "conv1", None), getattr(network, "maxpool", None)
    setattr(network, "published_stem", not small or stem is None or pool is None)  # noqa: B010
    if stem is None or pool is None:
        return False
    if not small:
        return True
    if isinstance(stem, nn.Conv2d):
        network.conv1 = nn.Conv2d(stem.in_channels, stem.out_channels, 3, padding=1, bias=stem.bias is not None)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    else:
        for module in stem.modules():
            if isinstance(module, nn.Conv2d):
                module.stride = (1, 1)
    network.maxpool = nn.Identity()
    return True
