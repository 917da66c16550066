"""Runs all benchmarks, one after another, and writes their rows to docs/benchmarks/.

Usage: python benchmarks/run_all.py
"""

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "docs" / "benchmarks"
NAMES = ("cd_step", "routing_layer", "growth", "pipeline", "serving")


def main():
    RESULTS.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in NAMES:
        print(f"== {name}", flush=True)
        start = time.perf_counter()
        command = [sys.executable, HERE / f"{name}.py", "--json", RESULTS / f"{name}.json"]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
        print(f"== {name}: {time.perf_counter() - start:.0f} s", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
