"""How long `quorumlog dev` takes to its ready line, and what it holds in memory when idle.

Each round starts a node on a new directory (it formats the directory too) and reads its resident
memory one second after the ready line, from /proc. Beside it the start of a bare Python that
imports grpc, the least that a gRPC server in Python could take. And the processor time of
`quorumlog --help` and of `import quorumlog` beyond a bare Python's.

Run: python benchmarks/startup.py [--rounds 10]
Goal: the median start takes at most 1.0 s of wall time; idle memory stays under 90 MB; help takes
at most 0.15 s of processor time, the import 0.03 s.
"""

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
IDLE_S = 1.0


def start(folder: str) -> tuple[float, float]:
    """Start and stop a node; return seconds to its ready line and its idle memory in MB."""
    command = [sys.executable, "-m", "quorumlog.cli", "dev", "--data-dir", f"{folder}/data"]
    command += ["--grpc-port", "0", "--controller-port", "0", "--output", "json"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        ready = json.loads(process.stdout.readline())
        seconds = time.perf_counter() - began
        time.sleep(IDLE_S)
        status = Path(f"/proc/{ready['pid']}/status").read_text()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
    return seconds, int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6


def bare() -> float:
    """Return the seconds of a Python that imports grpc and ends."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import grpc.aio"], check=True)
    return time.perf_counter() - began


def cpu_s(arguments: list[str], rounds: int) -> float:
    """Return the median seconds of processor that a Python with these arguments takes."""
    seconds = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(seconds)


def main() -> None:
    """Measure, print, and write benchmarks/results/startup.json."""
    parser = argparse.ArgumentParser(description="The start of a node.")
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    starts, sizes, bares = [], [], []
    for number in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            seconds, size = start(folder)
        if number:  # the first warms the file cache
            starts.append(seconds)
            sizes.append(size)
            bares.append(bare())
    nothing_s = cpu_s(["-c", ""], rounds)
    result = {
        "benchmark": "startup",
        "help_cpu_s_median": cpu_s(["-m", "quorumlog.cli", "--help"], rounds),
        "import_cpu_s_median": max(0.0, cpu_s(["-c", "import quorumlog"], rounds) - nothing_s),
        "ready_s_median": statistics.median(starts),
        "ready_s": starts,
        "import_grpc_s_median": statistics.median(bares),
        "idle_mb_max": max(sizes),
        "python": platform.python_version(),
        "machine": platform.platform(),
    }
    print(f"ready line    {result['ready_s_median']:.2f} s median of {rounds} (goal 1.0)")
    print(f"import grpc   {result['import_grpc_s_median']:.2f} s")
    print(f"help          {result['help_cpu_s_median']:.3f} s of processor (goal 0.15)")
    print(f"import        {result['import_cpu_s_median']:.3f} s of processor (goal 0.03)")
    print(f"idle memory   {result['idle_mb_max']:.0f} MB (goal 90)")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "startup.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
