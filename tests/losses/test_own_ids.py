"""What is remembered between calls never outlives the truth."""

from contextlib import suppress

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from nearfar.losses import info_nce, nt_xent
from nearfar.losses.info_nce import nt_xent_reference


def test_ids_changed_behind_torchs_back_are_seen() -> None:
    generator = torch.Generator().manual_seed(0)
    query, positive = torch.randn(2, 6, 4, dtype=torch.float64, generator=generator)
    ids = torch.arange(6)
    memory = ids.numpy()  # shares memory; writing to it is not counted by torch
    info_nce(query, positive, temperature=0.1, ids=ids)
    memory[:] = [0, 0, 0, 1, 1, 1]
    found = info_nce(query, positive, temperature=0.1, ids=ids)
    expected = info_nce(query, positive, temperature=0.1, ids=torch.tensor([0, 0, 0, 1, 1, 1]))
    torch.testing.assert_close(found, expected)


def test_a_fake_call_leaves_nothing_behind() -> None:
    # a fake tensor holds no number to compare with the range of exp
    with FakeTensorMode(), suppress(Exception):
        nt_xent(torch.randn(13, 4), torch.randn(13, 4), temperature=0.1)
    z1, z2 = torch.randn(2, 13, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(nt_xent(z1, z2, temperature=0.1), nt_xent_reference(z1, z2, 0.1).mean())


def test_euclidean_distances_of_far_clusters_keep_their_digits() -> None:
    generator = torch.Generator().manual_seed(0)
    side = torch.where(torch.arange(16) % 2 == 0, 1000.0, -1000.0)[:, None]
    query = side + torch.randn(16, 8, generator=generator)
    positive = query + 0.5 * torch.randn(16, 8, generator=generator)
    found = info_nce(query, positive, temperature=1.0, similarity="euclidean", reduction="none")
    truth = info_nce(query.double(), positive.double(), temperature=1.0, similarity="euclidean", reduction="none")
    apart = torch.cdist(query.double(), positive.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
    dense = torch.nn.functional.cross_entropy(-apart, torch.arange(16), reduction="none")
    torch.testing.assert_close(truth, dense, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.double(), dense, rtol=1e-4, atol=1e-5)


def test_a_half_precision_query_meets_a_queue_in_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    query, positive = torch.randn(2, 8, 4, generator=generator).bfloat16()
    queue = torch.randn(32, 4, generator=generator)
    mixed = info_nce(query, positive, queue, temperature=0.2)
    torch.testing.assert_close(mixed, info_nce(query.float(), positive.float(), queue, temperature=0.2))
