"""`nearfar check`: is the machine right, and are loss and gradient exact here?"""

import argparse
import platform


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="nearfar check",
        description="Compare every loss and its gradient with its plain dense definition in float64 on this machine, "
        "then run one batch so large that its similarity matrix is not worth holding.",
    )
    parser.add_argument("--device", default="cpu", help="where to compute, for instance cuda (default: cpu)")
    parser.add_argument("--pairs", type=int, default=8192, help="pairs of the large batch (default: 8192)")
    options = parser.parse_args(arguments)
    if options.pairs < 1:
        parser.error(f"--pairs is {options.pairs}, expected at least 1")

    import torch
    from rich.console import Console
    from rich.table import Table

    from nearfar.scale.check import TOLERANCE, certify, large_batch

    console = Console()
    device = torch.device(options.device)
    torch.zeros(1, device=device)  # a device that is not there says so before anything else runs
    console.print(
        f"Python {platform.python_version()}, torch {torch.__version__}, {device.type}, "
        f"{torch.get_num_threads()} threads"
    )
    table = Table(title="float32 in tiles, against the dense definition in float64")
    for name in ("loss", "tile", "value, relative error", "gradient, relative error", ""):
        table.add_column(name, justify="left" if name in ("loss", "") else "right")
    failed = 0
    with console.status("comparing losses and gradients"):
        for row in certify(device):
            failed += not row.passed
            mark = "[green]right[/]" if row.passed else "[red]WRONG[/]"
            tile = "auto" if row.tile is None else str(row.tile)
            table.add_row(row.loss, tile, f"{row.value_error:.1e}", f"{row.gradient_error:.1e}", mark)
    console.print(table)

    with console.status(f"NT-Xent over {options.pairs:,} pairs, forward and backward"):
        seconds, loss = large_batch(options.pairs, device)
    matrix = 4 * (2 * options.pairs) ** 2 / 2**30
    console.print(
        f"NT-Xent over {options.pairs:,} pairs, forward and backward, tile by tile: {seconds:.2f} s, "
        f"loss {loss:.3f} (the whole matrix would take {matrix:.1f} GiB)"
    )
    if failed:
        console.print(f"[red]{failed} rows are off by more than {TOLERANCE:g}[/]: do not train here; please report it")
        return 1
    console.print(f"[green]every loss and every gradient agrees with its definition here[/], to {TOLERANCE:g}")
    return 0
