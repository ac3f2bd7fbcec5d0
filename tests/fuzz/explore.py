"""atheris on every target, each in a process of its own: `python -m tests.fuzz.explore --seconds 60`.

What it finds is written to `fuzz-findings/`; it belongs into `test_bombs.py` once it is mended.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FINDINGS = Path("fuzz-findings")
COUNT = re.compile(r"stat::number_of_executed_units:\s*(\d+)")  # libFuzzer's own, of -print_final_stats
TAIL = 30  # lines of the error of a target that failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("targets", nargs="*", help="all where none is named")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # what the processes are told
    options = parser.parse_args()
    if options.one is not None:
        return one(options.one, options.seconds)
    from tests.fuzz.targets import TARGETS

    failed, total = [], 0
    for name in options.targets or TARGETS:
        words = [sys.executable, "-m", "tests.fuzz.explore", "--one", name, "--seconds", str(options.seconds)]
        with tempfile.TemporaryFile() as file:  # a decoder in C may write any bytes to it
            done = subprocess.run(words, stderr=file)
            file.seek(0)
            said = file.read().decode(errors="replace")
        found = COUNT.findall(said)
        cases = int(found[-1]) if found else 0
        total += cases
        print(f"{name}: {cases:,} cases{', FAILED' if done.returncode else ''}", flush=True)
        if done.returncode:
            print("\n".join(said.splitlines()[-TAIL:]), flush=True)
            failed.append(name)
    print(f"{total:,} cases; " + (f"failed: {', '.join(failed)}; see {FINDINGS}/" if failed else "nothing found"))
    return 1 if failed else 0


def one(name: str, seconds: int) -> int:
    import atheris

    with atheris.instrument_imports(include=["nearfar.data", "nearfar.config", "yaml", "tarfile", "csv", "json"]):
        from tests.fuzz.targets import TARGETS
    target, seeds = TARGETS[name]
    FINDINGS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        for number, content in enumerate(seeds):
            (Path(corpus) / str(number)).write_bytes(content)
        limits = [f"-max_total_time={seconds}", "-timeout=30", "-rss_limit_mb=4096", "-verbosity=0"]
        limits += ["-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={FINDINGS}/{name}-", corpus], target)
        atheris.Fuzz()  # ends the process
    return 0


if __name__ == "__main__":
    sys.exit(main())
