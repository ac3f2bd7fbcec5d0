"""The kernels compile for GPUs that are not here, and fit into their shared memory."""

import os
import subprocess
import sys

import pytest

from nearfar.losses.engine.backends import has_triton

CODE = """
import sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from nearfar.losses.engine import triton_kernels, triton_sums

def shared(kernel, target, blocks, dtype, **constants):
    pointers = dict.fromkeys(("query", "keys", "own", "others", "values"), "*" + dtype)
    sizes = dict.fromkeys(("n", "m", "d", "guide_d", "first", "panel"), "i32")
    constants |= {"block_m": blocks.m, "block_n": blocks.n, "block_d": blocks.d, "widen": False}
    kinds = {}
    for name in kernel.arg_names:
        known = (pointers | sizes).get(name) or ("*i64" if name.endswith("_ids") else "*fp32")
        kinds[name] = "constexpr" if name in constants else known
    whole = [n for n in kernel.arg_names if kinds[n].startswith("*") or n in ("d", "guide_d")]  # as launches have it
    attributes = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in whole}
    source = ASTSource(kernel, signature=kinds, constexprs=constants, attrs=attributes)
    options = {"num_warps": blocks.warps, "num_stages": blocks.stages}
    return compile(source, target=target, options=options).metadata.shared

target = {"cuda": GPUTarget("cuda", 80, 32), "hip": GPUTarget("hip", "gfx942", 64)}[sys.argv[1]]
limit = {"cuda": 99 << 10, "hip": 64 << 10}[sys.argv[1]]
sums, rows = triton_kernels.tile_sums, triton_kernels.weighted_rows
for dtype, candidates, parts in (
    ("fp32", triton_sums._FOR_EXACT, triton_sums._FOR_EXACT),
    ("bf16", triton_sums._FOR_SUMS, triton_sums._FOR_GRADIENTS),
):
    common = dict(has_ids=True, precision="ieee")
    own = dict(softplus=False, symmetric=True, has_guide=False)
    soft = dict(softplus=True, symmetric=False, has_guide=True)
    found = [shared(sums, target, candidates[-1], dtype, two_way=False, **each, **common) for each in (own, soft)]
    common |= dict(value_precision="ieee", has_own=True)
    both, one = dict(softplus=False, has_others=True, guide=0), dict(softplus=True, has_others=False, guide=2)
    found += [shared(rows, target, parts[-1], dtype, whole=False, **each, **common) for each in (both, one)]
    if dtype == "bf16":
        blocks = triton_sums._FOR_WHOLE_ROWS[-1]._replace(d=256)
        found.append(shared(rows, target, blocks, dtype, whole=True, **both, **common))
    assert max(found) <= limit, (dtype, found)
"""


@pytest.mark.slow
@pytest.mark.skipif(not has_triton(), reason="triton is not installed")
@pytest.mark.parametrize("target", ["cuda", "hip"])
def test_kernels_compile_for_a_target(target: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, target], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
