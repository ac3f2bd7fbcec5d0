import pytest
import torch
import torch.nn.functional as F

from nearfar.nn.bank import Bank
from tests.support.facts import facts


def test_rows_are_of_unit_length_and_follow_the_seed() -> None:
    bank = Bank(20, 6, seed=3)
    torch.testing.assert_close(bank.rows.norm(dim=1), torch.ones(20))
    assert torch.equal(bank.rows, Bank(20, 6, seed=3).rows)
    assert not torch.equal(bank.rows, Bank(20, 6, seed=4).rows)


def test_write_averages_and_normalises() -> None:
    bank = Bank(5, 3)
    before, v, index = bank.rows.clone(), torch.randn(2, 3) * 7, torch.tensor([4, 1])
    bank.write(index, v, 0.25, torch.tensor([40, 10]))
    torch.testing.assert_close(bank.read(index), F.normalize(0.25 * before[index] + 0.75 * F.normalize(v)))
    assert torch.equal(bank.rows[[0, 2, 3]], before[[0, 2, 3]])
    assert bank.row_ids.tolist() == [-1, 10, -1, -1, 40]


def test_of_equal_indices_the_last_is_written() -> None:
    bank = Bank(3, 2)
    bank.write(torch.tensor([1, 1, 1]), torch.tensor([[1.0, 0], [-1.0, 0], [0, 1.0]]), 0.0)
    torch.testing.assert_close(bank.rows[1], torch.tensor([0.0, 1.0]))


def test_noise_is_uniform_and_resumes() -> None:
    bank = Bank(8, 2, seed=5)
    counts = torch.zeros(8)
    for _ in range(50):
        counts += torch.bincount(bank.noise(400), minlength=8)
        bank.advance()
    assert (counts / counts.sum() - 1 / 8).abs().max() < 0.01
    other = Bank(8, 2, seed=0)
    other.load_state_dict(bank.state_dict())
    assert torch.equal(other.noise(30), bank.noise(30))


def test_wrong_arguments() -> None:
    bank = Bank(5, 3)
    with pytest.raises(ValueError, match=facts("index 2 5 bank")):
        bank.read(torch.tensor([2, 5]))
    with pytest.raises(ValueError, match=facts("momentum 1")):
        bank.write(torch.tensor([0]), torch.randn(1, 3), 1.0)
    with pytest.raises(ValueError, match=facts("n 0")):
        Bank(0, 3)
