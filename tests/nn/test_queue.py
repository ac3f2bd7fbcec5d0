import pytest
import torch

from nearfar.nn.queue import Queue
from tests.support.facts import facts


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 10, 11, 23])
def test_keeps_the_last_rows_at_any_batch_size(rows: int) -> None:
    torch.manual_seed(0)
    queue, history, ids = Queue(10, 4), torch.zeros(0, 4), []
    for step in range(12):
        keys = torch.randn(rows, 4)
        numbers = torch.arange(step * rows, (step + 1) * rows)
        queue.push(keys, numbers)
        history = torch.cat([history, torch.nn.functional.normalize(keys)])
        ids += numbers.tolist()
        assert sorted(queue.ids().tolist()) == ids[-10:]
        torch.testing.assert_close(queue.keys()[queue.ids().argsort()], history[-10:])
        torch.testing.assert_close(queue.keys().norm(dim=1), torch.ones(len(queue)))


def test_an_empty_queue_has_no_rows() -> None:
    queue = Queue(5, 3)
    assert queue.keys().shape == (0, 3) and queue.ids().shape == (0,)
    assert queue.fill() == 0 and queue.age() == 0


def test_its_state_continues_in_another() -> None:
    torch.manual_seed(0)
    a, b = Queue(7, 3), Queue(7, 3)
    a.push(torch.randn(5, 3), torch.arange(5))
    b.load_state_dict(a.state_dict())
    more = torch.randn(4, 3)
    for queue in (a, b):
        queue.push(more, torch.arange(5, 9))
    for key, value in a.state_dict().items():
        assert torch.equal(value, b.state_dict()[key]), key
    assert set(a.state_dict()) == {"rows", "row_ids", "stamps", "pointer", "filled", "pushes"}


def test_age_counts_pushes() -> None:
    queue = Queue(4, 2)
    queue.push(torch.randn(2, 2), torch.arange(2))
    assert queue.age() == 1
    queue.push(torch.randn(2, 2), torch.arange(2))
    assert queue.age() == 1.5 and queue.fill() == 1


def test_half_precision_keys_and_rows_that_are_not_finite() -> None:
    queue = Queue(4, 2)
    queue.push(torch.tensor([[3.0, 4.0], [torch.nan, 1.0]], dtype=torch.bfloat16), torch.tensor([1, 2]))
    assert queue.ids().tolist() == [1] and queue.rows.dtype == torch.float32
    torch.testing.assert_close(queue.keys(), torch.tensor([[0.6, 0.8]]))


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=facts("size 0")):
        Queue(0, 3)
    with pytest.raises(ValueError, match=facts("ids (2,)")):
        Queue(4, 3).push(torch.randn(3, 3), torch.arange(2))
