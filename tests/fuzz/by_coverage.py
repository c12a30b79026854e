"""`make fuzz`: a fuzzer guided by coverage, one process for each target.

`python -m tests.fuzz.by_coverage --seconds 30 [--target NAME]`. It needs atheris, which is no
dependency of the tests: install it with `pip install atheris`. An input that fails a target is
stored in the folder printed at the end, to be replayed with `--target NAME --input FILE`.
"""

import argparse
import importlib
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

RSS_MB_MAX = 1024
INPUT_SECONDS_MAX = 10


def main() -> int:
    """Fuzz all targets in sequence, or one; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.by_coverage")
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("--target", default="", help="this one alone")
    parser.add_argument("--input", type=Path, help="replay one input")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.input is not None:
        return _replay(options.target, options.input)
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: pip install atheris", file=sys.stderr)
        return 2
    if options.worker:
        return _fuzz(options.target, Path(options.worker), options.seconds)
    return _all(options.target, options.seconds)


def _all(only: str, seconds: int) -> int:
    from .targets import targets

    folder = Path(tempfile.mkdtemp(prefix="quorumlog-fuzz-"))
    broken = []
    for fuzzed in targets():
        if only and fuzzed.name != only:
            continue
        corpus = folder / fuzzed.name.replace(" ", "-")
        corpus.mkdir()
        for number, content in enumerate(fuzzed.corpus):
            (corpus / f"good-{number}").write_bytes(content)
        command = [sys.executable, "-m", "tests.fuzz.by_coverage", "--target", fuzzed.name]
        command += ["--worker", str(corpus), "--seconds", str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True)
        print(f"{'broken' if done.returncode else 'ok':<8}{fuzzed.name}", flush=True)
        if done.returncode:
            broken.append(fuzzed.name)
            print(done.stdout[-2_000:], done.stderr[-4_000:])
    print(f"inputs are in {folder}" if broken else "no input broke a target")
    return 1 if broken else 0


def _fuzz(name: str, corpus: Path, seconds: int) -> int:
    atheris = importlib.import_module("atheris")

    with atheris.instrument_imports(include=["quorumlog"]):
        from . import targets

    (fuzzed,) = [one for one in targets.targets() if one.name == name]
    flags = [f"-max_total_time={seconds}", f"-rss_limit_mb={RSS_MB_MAX}", "-max_len=8192"]
    flags += [f"-timeout={INPUT_SECONDS_MAX}", f"-artifact_prefix={corpus}/broken-"]
    atheris.Setup([name, str(corpus), *flags], lambda data: targets.survive(fuzzed.run, data))
    atheris.Fuzz()
    return 0


def _replay(name: str, path: Path) -> int:
    from .targets import survive, targets

    for fuzzed in targets():
        if fuzzed.name == name:
            survive(fuzzed.run, path.read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
