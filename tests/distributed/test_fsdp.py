"""How a method is cut into units, and put together again; `test_many_processes.py` has what processes make of it."""

import copy

import torch

from nearfar.distributed import fsdp
from nearfar.methods import METHODS
from nearfar.methods.byol import BYOL
from nearfar.modalities.image.backbones import backbone
from tests.distributed.chunks import batch_of, made


def test_units_are_the_blocks_of_a_stack_in_copies_too() -> None:
    method = BYOL(backbone("micro"), features=256, dim=4, hidden=4)
    names = {id(module): name for name, module in method.named_modules()}
    found = [names[id(block)] for block in fsdp.find_blocks(method)]
    assert sorted(found) == sorted(f"{of}.blocks.{i}" for of in ("encoder", "target.0") for i in range(3))
    assert len(fsdp.find_blocks(made("byol"))) == 4 and len(fsdp.find_blocks(made("simcse"))) == 2
    assert fsdp.find_blocks(METHODS["simclr"].toy()[0]) == []  # single layers are none


def test_a_hollow_copy_is_filled_with_weights() -> None:
    method = made("siglip")
    empty = fsdp.meta_copy(method)
    assert all(p.is_meta for p in empty.parameters()) and not any(p.is_meta for p in method.parameters())
    full = fsdp.materialize(empty, copy.deepcopy(method.state_dict()))
    batch = batch_of("siglip")
    torch.manual_seed(0)
    expected = method(batch).loss
    torch.manual_seed(0)
    assert float(full(batch).loss.detach()) == float(expected.detach())
    assert all(p.is_meta for p in empty.parameters())  # to be filled again
