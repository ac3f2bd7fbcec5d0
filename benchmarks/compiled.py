"""torch.compile beside eager: a loss, forward and backward, in one process, in turns.

    .venv-bench/bin/python benchmarks/compiled.py     # into benchmarks/results/compiled.md

Times are processor seconds of one thread, medians of interleaved turns; values and gradients are compared first.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch

from machine import describe
from nearfar import losses

RESULTS = Path(__file__).parent / "results"
LOSSES = {
    "nt_xent": lambda a, b: losses.nt_xent(a, b, temperature=0.1),
    "symmetric_info_nce": lambda a, b: losses.symmetric_info_nce(a, b, temperature=0.1),
    "info_nce": lambda a, b: losses.info_nce(a, b, temperature=0.1),
    "sigmoid_pairs": lambda a, b: losses.sigmoid_pairs(a, b, logit_scale=10.0, logit_bias=-10.0),
}
TURNS = {64: (15, 40), 512: (9, 5), 8192: (3, 1)}  # pairs: turns, and steps in each


def measure(name: str, pairs: int, features: int) -> tuple[float, float, float]:
    """Seconds of a step in eager code, compiled, and of the first compiled step."""
    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(0)
    z1, z2 = (torch.randn(pairs, features, generator=generator).requires_grad_() for _ in range(2))
    eager = LOSSES[name]
    compiled = torch.compile(eager, fullgraph=True)

    def step(loss) -> torch.Tensor:
        z1.grad = z2.grad = None
        value = loss(z1, z2)
        value.backward()
        return value.detach()

    start = time.perf_counter()
    found = step(compiled), z1.grad
    first = time.perf_counter() - start
    torch.testing.assert_close(found, (step(eager), z1.grad), rtol=1e-4, atol=1e-6)
    turns, burst = TURNS[pairs]
    times: dict[str, list[float]] = {"eager": [], "compiled": []}
    for _ in range(turns):
        for way, loss in (("eager", eager), ("compiled", compiled)):
            start = time.process_time()
            for _ in range(burst):
                step(loss)
            times[way].append((time.process_time() - start) / burst)
    return statistics.median(times["eager"]), statistics.median(times["compiled"]), first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=list(TURNS), choices=list(TURNS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = ["| loss | pairs | eager | compiled | compiled / eager | first step |", "|---|---|---|---|---|---|"]
    for pairs in options.pairs:
        for name in LOSSES:
            eager, compiled, first = measure(name, pairs, 128)
            cells = [name, f"{pairs:,}", f"{eager * 1e3:.2f} ms", f"{compiled * 1e3:.2f} ms", f"{compiled / eager:.2f}"]
            rows.append("| " + " | ".join([*cells, f"{first:.0f} s"]) + " |")
            print(rows[-1], file=sys.stderr, flush=True)
    page = (
        "# torch.compile: losses compiled and in eager code\n\n"
        f"`python benchmarks/compiled.py` on {describe()}.\n"
        "Forward and backward of a loss by itself, D = 128, float32, one thread, `torch.compile(fullgraph=True)`, "
        "default backend. Processor seconds, medians of interleaved turns; values and gradients agree. A first step "
        "compiles.\n\n" + "\n".join(rows) + "\n"
    )
    print(page)
    if options.pairs == list(TURNS):
        (RESULTS / "compiled.md").write_text(page)


if __name__ == "__main__":
    main()
