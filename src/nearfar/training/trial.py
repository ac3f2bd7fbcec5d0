"""A few steps of a method that is thrown away: to time them, or to see what they learn."""

import time
from collections.abc import Iterator

import torch

from nearfar.config import TrainConfig
from nearfar.data.dataset import Dataset
from nearfar.data.loader import Loader
from nearfar.methods import Method
from nearfar.modalities.base import Modality
from nearfar.training.build_method import build_method, lay_out
from nearfar.training.guide import GuideEncoder
from nearfar.training.optimizers import rate_factor, set_rates


class Trial:
    """A method of its own, trained on some data and nothing else changed.

    Args:
        config: of the method, its views and its optimizer.
        modality: that makes the views.
        data: the samples.
        labels: (N,) for methods that learn from them.
        guide: of methods that have one.
    """

    def __init__(
        self,
        config: TrainConfig,
        modality: Modality,
        data: Dataset,
        device: torch.device,
        labels: torch.Tensor | None,
        guide: GuideEncoder | None = None,
    ) -> None:
        self.config, self.modality, self.data, self.device, self.labels = config, modality, data, device, labels
        self.guide = guide
        self.method: Method = build_method(config, len(data)).to(device)
        lay_out(self.method, config)

    def steps(self, loader: Loader, count: int) -> Iterator[float]:
        """Train for so many steps; yields the seconds of each."""
        from nearfar.training.lightning_module import Pretraining, Steps

        config, data = self.config, self.data
        ids = self.modality.ids(data)
        module = Pretraining(
            self.method,
            config,
            self.modality,
            data,
            total=count,
            ids=ids,
            labels=self.labels,
            checkpoint=str,
            guide=self.guide,
        )
        optimizer = module.configure_optimizers()
        half = torch.bfloat16 if config.precision == "bf16" else torch.float16
        self.method.train()
        for number, index, samples in Steps(data, loader, 0, count):
            begun = time.perf_counter()
            set_rates(optimizer, rate_factor(number, count, config.optimizer))
            with torch.autocast(self.device.type, dtype=half, enabled=config.precision != "32"):
                loss = module.training_step((number, index, samples.to(self.device)), 0)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            float(loss.detach())  # waits for the device
            module.done += 1
            self.method.after_step(module.done / count)
            yield time.perf_counter() - begun
        self.modality.forget_buffers()
