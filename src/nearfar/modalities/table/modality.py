"""Tables: views that take columns from other rows, a multi-layer perceptron, the scaled columns as the baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.config import TrainConfig
from nearfar.data.dataset import Dataset
from nearfar.data.table_kind import table_file
from nearfar.messages import nearest_or_all
from nearfar.methods import choose_views, known_method
from nearfar.modalities.base import Modality
from nearfar.modalities.own_network import own_network
from nearfar.modalities.table.data import LARGEST, TableDataset, code_of, number_of, open_table
from nearfar.modalities.table.views import TABLE_PRESETS, corrupted
from nearfar.nn.shard import Shard
from nearfar.python_objects import is_object
from nearfar.weights.load import begin_from_file

BACKBONES = {"table-mlp": (256, 4), "table-mlp-small": (64, 2)}  # width and layers; the first is SCARF's


class TableModality(Modality):
    """Rows of C columns (B, C); columns of texts become one number for each of their values."""

    name = "table"
    noun = "rows"
    queries = ("row",)
    baseline_name = "scaled columns"
    takes_objects = frozenset({"encoder"})

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.preset = config.views.preset or known_method(config.method).views_of(self.name) or "corrupted"
        if self.preset not in TABLE_PRESETS:
            raise ValueError(f"there are no views {self.preset!r} of rows{nearest_or_all(self.preset, TABLE_PRESETS)}")
        self.recipes = choose_views(config.method, self.preset, TABLE_PRESETS[self.preset](), count=config.views.count)

    @classmethod
    def recognizes(cls, data: str) -> bool:
        return not is_object(data) and (table_file(data) is not None or Path(data).suffix.lower() == ".npz")

    @classmethod
    def defaults(cls, data: str) -> dict[str, Any]:
        return {
            "backbone": "table-mlp",
            "batch_size": 128,
            "epochs": 100,
            "optimizer": {"name": "adamw", "lr": 1e-3, "scale_lr": "none"},
            "embedding": "plain",
        }

    def open(self, spec: str, split: str | None = None) -> Dataset:
        if split is not None:
            raise ValueError(f"{spec} has no split {split!r}; give the test rows as --data.test")
        data = open_table(spec, self.config.data)
        if self.config.table.columns not in (None, data.header):
            known = self.config.table.columns or []
            odd = next((name for name in [*known, *data.header] if (name in known) != (name in data.header)), "order")
            raise ValueError(f"{spec} has {data.size} columns, expected the run's {len(known)} in order; see {odd!r}")
        return data

    def fit(self, data: Dataset) -> TrainConfig:
        """Measure mean and deviation of numbers, and note the values of texts."""
        assert isinstance(data, TableDataset)
        wide = data.values.double()
        mean = wide.nanmean(0).nan_to_num(0.0)
        std = (wide - mean).square().nanmean(0).sqrt().nan_to_num(0.0)
        std = torch.where(std > 0, std, 1.0)  # of a constant column
        texts = torch.tensor(data.of_texts)
        codes = {
            name: sorted({int(x) for x in data.values[:, i].tolist() if x == x})
            for i, name in enumerate(data.header)
            if data.of_texts[i]
        }
        table = replace(
            self.config.table,
            columns=data.header,
            categories=codes,
            mean=mean.masked_fill(texts, 0.0).tolist(),
            std=std.masked_fill(texts, 1.0).tolist(),
        )
        self.config = replace(self.config, table=table)
        return self.config

    def encoder(self, *, untrained: bool = False) -> nn.Module:
        config, table = self.config, self.config.table
        widths = [len(table.categories[name]) if name in table.categories else 1 for name in table.columns or ()]
        inputs = sum(widths) or 1
        if is_object(config.backbone):
            return own_network(config.backbone, torch.zeros(2, inputs, device="cpu"))
        if config.backbone not in BACKBONES:
            raise ValueError(f"unknown encoder of rows {config.backbone!r}{nearest_or_all(config.backbone, BACKBONES)}")
        if config.pretrained:
            raise ValueError("there are no pretrained weights of tables; leave --pretrained out")
        network = RowEncoder(inputs, *BACKBONES[config.backbone])
        if config.weights is not None and not untrained:
            begin_from_file(network, config.weights, config.backbone)
        return network

    def prepare(self, samples: Tensor) -> Tensor:
        """(B, C) to (B, D): scaled numbers, 0 where one is missing, then a 1 for the value of each text."""
        table = self.config.table
        names = table.columns or [str(i) for i in range(samples.shape[1])]
        mean, std = (
            samples.new_tensor(given or [other] * len(names)) for given, other in ((table.mean, 0.0), (table.std, 1.0))
        )
        numbers = [i for i, name in enumerate(names) if name not in table.categories]
        blocks = [((samples - mean) / std)[:, numbers].nan_to_num(0.0)]
        for i, name in enumerate(names):
            if name in table.categories:
                blocks.append((samples[:, i, None] == samples.new_tensor(table.categories[name])).to(samples))
        return torch.cat(blocks, 1)

    def views(
        self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int, shard: Shard | None = None
    ) -> list[Tensor]:
        return self._views(self.recipes, samples, source, index, seed, step)

    def pair_of_views(self, samples: Tensor, source: Dataset, index: Tensor, *, seed: int, step: int) -> list[Tensor]:
        return self._views((False, True), samples, source, index, seed, step)

    def read(self, item: Any, kind: str | None = None) -> Tensor:
        """(C,) float32, from an array, a list of numbers and texts, or a mapping of column to value."""
        names = self.config.table.columns or []
        if isinstance(item, Mapping):
            if missing := [name for name in names if name not in item]:
                raise ValueError(f"a row has no value of {missing[0]!r}, expected one for each of {len(names)} columns")
            item = [item[name] for name in names]
        if not isinstance(item, Tensor):
            item = torch.tensor([self._cell(cell, i) for i, cell in enumerate(item)])
        if item.ndim != 1 or (names and len(item) != len(names)):
            raise ValueError(
                f"a row has shape {tuple(item.shape)}, expected ({len(names)},): one value for each column"
            )
        row: Tensor = item.float()
        return row

    def check_batch(self, samples: Tensor, kind: str) -> Tensor:
        columns = len(self.config.table.columns or ())
        if samples.ndim != 2 or samples.shape[1] != columns:
            raise ValueError(f"rows have shape {tuple(samples.shape)}, expected (B, {columns})")
        return samples.float()

    def card(self) -> dict[str, Any]:
        texts = len(self.config.table.categories)
        words = "numbers minus their mean, divided by their deviation"
        return {
            "modality": self.name,
            "preprocessing": f"{words}; {texts} columns of texts one-hot" if texts else words,
        }

    def show(self, source: Dataset, folder: Path) -> str:
        return f"views: {self.preset}, {self.config.table.corruption:.0%} of the columns from other rows"

    def _cell(self, cell: Any, column: int) -> float:
        names = self.config.table.columns or []
        if column < len(names) and names[column] in self.config.table.categories:
            return float("nan") if number_of(cell) != number_of(cell) else float(code_of(str(cell)))
        number = number_of(cell)
        if number is None or abs(number) > LARGEST:
            name = names[column] if column < len(names) else str(column)
            raise ValueError(
                f"the value {str(cell)[:40]!r} of column {name!r} is no number of float32, as in the training rows"
            )
        return number

    def _views(
        self, recipes: Sequence[bool], samples: Tensor, source: Dataset, index: Tensor, seed: int, step: int
    ) -> list[Tensor]:
        assert isinstance(source, TableDataset)
        rate = self.config.table.corruption
        return [
            self.prepare(
                corrupted(samples, source, index, rate, seed=seed, step=step, view=view) if changed else samples
            )
            for view, changed in enumerate(recipes)
        ]


class RowEncoder(nn.Sequential):
    """Linear layers, each with a ReLU: (B, D) to (B, width)."""

    def __init__(self, inputs: int, width: int, layers: int) -> None:
        parts: list[nn.Module] = []
        for i in range(layers):
            parts += [nn.Linear(width if i else inputs, width), nn.ReLU()]
        super().__init__(*parts)
        self.num_features = width
