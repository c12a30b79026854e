"""The time of `quorumlog dev` to its ready line, and its idle memory.

Each round starts a node on a new directory (it formats the directory too) and reads its resident
memory one second after the ready line, from /proc; and one with `--secure`, which also creates
certificates and users. The comparison is the start of a bare Python that imports grpc, the minimum
of a gRPC server in Python. Further the processor time of `quorumlog --help` and of `import
quorumlog` beyond a bare Python's. Then the waits of tests: a `Broker` of `quorumlog.testing` from
its import to the first record that librdkafka reports as stored, including the creation of the
topic; a whole run of pytest with one such test; a cluster of three nodes.

Run: python benchmarks/startup.py [--rounds 10]
Goal: the median start takes at most 0.35 s of wall time, the secure one 1 s; idle memory stays
under 60 MB; help takes at most 0.15 s of processor time, the import 0.03 s; the run of pytest takes
at most 3 s.
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

PRODUCING = """
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka})
    producer.produce(topic, value="x")
    assert producer.flush(10) == 0
"""
FIRST_RECORD = f"""
from quorumlog.testing import Broker
with Broker() as broker:
    topic = broker.create_topic()
    import confluent_kafka
    {PRODUCING.strip()}
    print("done", flush=True)
"""
FIXTURE = f"""
import confluent_kafka
def test_producing(quorumlog_broker, quorumlog_topic):
    broker, topic = quorumlog_broker, quorumlog_topic
    {PRODUCING.strip()}
"""
CLUSTER = """
from quorumlog.testing import Cluster
with Cluster(brokers=3):
    print("done", flush=True)
"""


def start(folder: str, *options: str) -> tuple[float, float]:
    """Start and stop a node; return seconds to its ready line and its idle memory in MB."""
    command = [sys.executable, "-m", "quorumlog.cli", "dev", "--data-dir", f"{folder}/data"]
    command += ["--grpc-port", "0", "--controller-port", "0", "--output", "json", *options]
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


def until_done(program: str) -> float:
    """Return the seconds from the start of a Python program to its first line."""
    began = time.perf_counter()
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - began
    assert line == "done\n", "the program failed"
    return seconds


def whole_test(folder: str) -> float:
    """Return the seconds of a run of pytest with one test, in an otherwise empty folder."""
    (Path(folder) / "test_producing.py").write_text(FIXTURE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def in_tests(rounds: int) -> dict[str, float]:
    """Return the medians of the waits of tests, in seconds."""
    found: dict[str, list[float]] = {"first_record": [], "pytest": [], "cluster": []}
    for number in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            row = {
                "first_record": until_done(FIRST_RECORD),
                "pytest": whole_test(folder),
                "cluster": until_done(CLUSTER),
            }
        if number:
            for name, seconds in row.items():
                found[name].append(seconds)
    return {f"{name}_s_median": statistics.median(seconds) for name, seconds in found.items()}


def cpu_s(arguments: list[str], rounds: int) -> float:
    """Return the median CPU seconds of a Python with these arguments."""
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
    starts, sizes, secure, bares = [], [], [], []
    for number in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            seconds, size = start(folder)
        with tempfile.TemporaryDirectory() as folder:
            secure_s, _ = start(folder, "--secure")
        if number:  # the first run warms the file cache
            starts.append(seconds)
            secure.append(secure_s)
            sizes.append(size)
            bares.append(bare())
    nothing_s = cpu_s(["-c", ""], rounds)
    result = {
        "benchmark": "startup",
        "help_cpu_s_median": cpu_s(["-m", "quorumlog.cli", "--help"], rounds),
        "import_cpu_s_median": max(0.0, cpu_s(["-c", "import quorumlog"], rounds) - nothing_s),
        "ready_s_median": statistics.median(starts),
        "ready_s": starts,
        "secure_ready_s_median": statistics.median(secure),
        "secure_ready_s": secure,
        "import_grpc_s_median": statistics.median(bares),
        "idle_mb_max": max(sizes),
        **in_tests(rounds),
        "python": platform.python_version(),
        "machine": platform.platform(),
    }
    print(f"ready line    {result['ready_s_median']:.2f} s median of {rounds} (goal 0.35)")
    print(f"with --secure {result['secure_ready_s_median']:.2f} s (goal 1)")
    print(f"import grpc   {result['import_grpc_s_median']:.2f} s")
    print(f"help          {result['help_cpu_s_median']:.3f} s of processor (goal 0.15)")
    print(f"import        {result['import_cpu_s_median']:.3f} s of processor (goal 0.03)")
    print(f"idle memory   {result['idle_mb_max']:.0f} MB (goal 60)")
    print(f"first record  {result['first_record_s_median']:.2f} s in a test's own broker")
    print(f"pytest        {result['pytest_s_median']:.2f} s for a run of one such test (goal 3)")
    print(f"three nodes   {result['cluster_s_median']:.2f} s until they serve")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "startup.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
