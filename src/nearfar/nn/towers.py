"""Two encoders with one joint embedding space: image and text, sound and text."""

from torch import Tensor, nn


class Tower(nn.Module):
    """An encoder and its projection into the joint space: x (B, ...) to z (B, dim).

    Args:
        encoder: x (B, ...) to h (B, F), with F in its `num_features`.
        hidden: units of a hidden layer (ReLU) before the last linear layer; 0: the projection is linear.

    Attributes:
        takes_features: floats (B, F) are features that the encoder has given before, and are only projected. Off at
            first: an encoder of vectors has samples of that shape, too.
    """

    projection: nn.Linear | nn.Sequential

    def __init__(self, encoder: nn.Module, embed_dim: int, *, hidden: int = 0) -> None:
        super().__init__()
        features = getattr(encoder, "num_features", None)
        if not isinstance(features, int):
            raise ValueError(f"{type(encoder).__name__} has no num_features; set it to the F of its output (B, F)")
        self.encoder, self.takes_features = encoder, False
        last = nn.Linear(hidden or features, embed_dim, bias=False)
        nn.init.normal_(last.weight, std=last.in_features**-0.5)
        self.projection = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), last) if hidden else last
        self.num_features = embed_dim

    @property
    def last(self) -> nn.Linear:
        """The layer that gives the joint space."""
        layer = self.projection[-1] if isinstance(self.projection, nn.Sequential) else self.projection
        assert isinstance(layer, nn.Linear)
        return layer

    def forward(self, x: Tensor) -> Tensor:
        is_features = self.takes_features and x.is_floating_point() and x.ndim == 2
        z: Tensor = self.projection(x if is_features else self.encoder(x))
        return z


class TwoTowers(nn.Module):
    """Two towers into one space of `embed_dim` features.

    `first` encodes images or sounds, `second` the texts that describe them. Called as an encoder, this is its first
    tower, so that k-NN, linear evaluation, search and export work; use `second` by name.

    Args:
        first, second: encoders, each with its number of features in `num_features`.
        embed_dim: features of the joint space.
        second_hidden: units of a hidden layer in the projection of the second; 0: it is linear.

    Reference: Radford et al. 2021, fig. 3, https://arxiv.org/abs/2103.00020

    >>> import torch
    >>> from nearfar.modalities.image.backbones import backbone
    >>> from nearfar.modalities.text.encoders import text_encoder
    >>> towers = TwoTowers(backbone("micro"), text_encoder("text-micro", vocab_size=300, max_length=16), embed_dim=32)
    >>> z1, z2 = towers.first(torch.zeros(2, 3, 32, 32)), towers.second(torch.ones(2, 5, dtype=torch.long))
    >>> z1.shape, z2.shape, towers.num_features
    (torch.Size([2, 32]), torch.Size([2, 32]), 32)
    """

    def __init__(self, first: nn.Module, second: nn.Module, *, embed_dim: int = 512, second_hidden: int = 0) -> None:
        super().__init__()
        if embed_dim < 1:
            raise ValueError(f"embed_dim is {embed_dim}, expected at least 1")
        self.first, self.second = Tower(first, embed_dim), Tower(second, embed_dim, hidden=second_hidden)
        self.num_features = embed_dim

    def forward(self, x: Tensor) -> Tensor:
        """The first tower's z (B, dim) of x (B, ...), not normalized."""
        z: Tensor = self.first(x)
        return z
