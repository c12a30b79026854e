"""Runs the blocks of documentation pages in order, as a reader would, beside one node.

`python player.py PAGE... [--spark] [--list]`: each page runs in a new folder. The exit code is 0 if
everything has the documented result; otherwise the first difference is printed with its line.

The language of a fenced block determines how it runs:

- `python`: in this process. A block that begins with an import is a new program; another continues
  the previous one. `await` may occur outside of functions, as in `python -m asyncio`. A block that
  imports `quorumlog.spark`, and its continuations, run only with `--spark`.

- `sh`: bash runs each line; exit code 0 is expected. `export NAME=...` applies to the lines after
  it. `quorumlog dev` starts the node, `make` names an existing target, `grpcurl` is left to
  `tests/cluster/test_grpc_page.py`. Clusters that `quorumlog cluster up` started are stopped.

- `text`: the output of the previous block; a line `...` matches any lines, `...` within a line any
  text.

- `toml`: a node's configuration.

`<!-- not run: reason -->` before a block excludes it, `<!-- first: commands -->` has shell commands
that run just before it, as the reader's prerequisites. The addresses 127.0.0.1:9092, 127.0.0.1:9094
and 127.0.0.1:9095 are replaced by those of the node, and the time limit of a block is BLOCK_S
seconds.
"""

import argparse
import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ADDRESSES = {  # as in the pages
    "127.0.0.1:9092": "kafka",
    "127.0.0.1:9094": "grpc",
    "127.0.0.1:9095": "http",
}
BLOCK_S = 300
READY_S = 120
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARKER = re.compile(r"<!-- (not run|first): ([^>]+) -->\s*\Z")
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


class Differs(Exception):
    """The page differs from the actual result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int  # of its first line, from 1
    language: str
    text: str
    not_run: str  # the reason of the exclusion; empty: it runs
    first: str  # shell commands that run before it

    @property
    def begins_anew(self) -> bool:
        """Return True if the block is a new program."""
        first = next((line for line in self.text.splitlines() if not line.startswith("#")), "")
        return first.startswith(("import ", "from "))


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        marker = MARKER.search(text, 0, match.start())
        said = {marker[1]: " ".join(marker[2].split())} if marker else {}
        found.append(
            Block(
                page=page.name,
                line=text.count("\n", 0, match.start()) + 2,
                language=match[1],
                text=match[2],
                not_run=said.get("not run", ""),
                first=said.get("first", ""),
            )
        )
    return found


# --- the node ------------------------------------------------------------------------------------


class Node:
    """`quorumlog dev` on free ports, started if a block needs it or has the command."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._addresses: dict[str, str] = {}

    def address(self, which: str = "grpc") -> str:
        """Return its address for `grpc`, `kafka` or `http`; start it in this folder if it does not
        run."""
        if self._process is None:
            self.start([])
        return self._addresses[which]

    def start(self, options: list[str]) -> None:
        """Start it as the page does, but on free ports; a running node is kept."""
        if self._process is not None:
            if options:
                raise Differs("another node runs already: the page's blocks before needed one")
            return
        command = [sys.executable, "-m", "quorumlog.cli", "dev", *options]
        command += ["--grpc-port", "0", "--controller-port", "0", "--output", "json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], READY_S)[0]:
            raise Differs(f"no ready line within {READY_S} s")
        line = self._process.stdout.readline()
        if not line:
            raise Differs("the node did not start")
        self._addresses = json.loads(line)

    def stop(self) -> None:
        """Stop it in order if it runs."""
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=READY_S)


# --- the languages -------------------------------------------------------------------------------


class Player:
    """The state that the blocks of one page share."""

    def __init__(self, *, with_spark: bool) -> None:
        self._node = Node()
        self._with_spark = with_spark
        self._loop = asyncio.new_event_loop()
        self._names: dict[str, Any] = {}
        self._exported: dict[str, str] = {}
        self._is_spark = False  # the current program uses Spark
        self._printed: str | None = None  # output of the previous block; None if it was excluded

    def play(self, block: Block) -> None:
        """Run a block. Raise Differs."""
        if block.first and not self._is_left_out(block):
            self.shell(block.first)
        match block.language:
            case "python":
                self._python(block)
            case "sh":
                self._printed = "".join(self.shell(line) for line in commands(block.text))
            case "text":
                if self._printed is not None:
                    compare(self._printed, block.text)
                self._printed = None
            case "toml":
                check_config(block.text)
            case other:
                raise Differs(f"no rule to run {other or 'a block without a language'!r}")

    def close(self) -> None:
        """Stop everything; streams first process all available data."""
        if self._with_spark and (spark := spark_session()) is not None:
            for query in spark.streams.active:
                query.processAllAvailable()
                query.stop()
        for name in self._exported:
            os.environ.pop(name, None)
        self._names.clear()
        self._loop.close()
        self._node.stop()
        for cluster in Path().glob("*/cluster.json"):
            self.shell(f"quorumlog cluster down --data-dir {cluster.parent}")

    def _python(self, block: Block) -> None:
        if block.begins_anew:
            self._names = {"__name__": "__main__"}
        self._printed = None
        if self._is_left_out(block):
            return
        source = block.text
        for port, which in (("9094", "grpc"), ("9092", "kafka")):
            written = re.compile(rf"\b(127\.0\.0\.1|localhost):{port}\b")
            if written.search(source):
                source = written.sub(self._node.address(which), source)
        name = f"{block.page}:{block.line}"
        code = compile(source, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), alarm():
            result = eval(code, self._names)
            if inspect.iscoroutine(result):
                self._loop.run_until_complete(result)
        self._printed = printed.getvalue()

    def _is_left_out(self, block: Block) -> bool:
        """Return True if the block is a part of a Spark program, and these are excluded."""
        if block.language == "python" and block.begins_anew:
            self._is_spark = "quorumlog.spark" in block.text
        return block.language == "python" and self._is_spark and not self._with_spark

    def shell(self, line: str) -> str:
        """Run a command and return its output."""
        program, _, rest = line.partition("#")[0].strip().partition(" ")
        if program == "grpcurl":
            return ""
        if program == "make":
            unknown = {word for word in rest.split() if "=" not in word} - targets()
            if unknown:
                raise Differs(f"{line}: no such target: {', '.join(sorted(unknown))}")
            return ""
        if program == "export":
            name, _, value = rest.partition("=")
            os.environ[name] = self._exported[name] = self._bash(f"printf %s {value}")
            return ""
        if line.startswith("quorumlog dev"):
            self._node.start(rest.split()[1:])
            return ""
        for address, which in ADDRESSES.items():
            if address in line:
                line = line.replace(address, self._node.address(which))
        return self._bash(line)

    def _bash(self, line: str) -> str:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=BLOCK_S,
            check=False,
        )
        if done.returncode:
            raise Differs(f"{line}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = os.environ | {"PATH": path}
        if "QUORUMLOG_BOOTSTRAP" not in self._exported:
            own["QUORUMLOG_BOOTSTRAP"] = self._node.address()
        return own


@contextlib.contextmanager
def alarm() -> Iterator[None]:
    """Interrupt a block that exceeds its time limit."""

    def ring(*_: object) -> None:
        raise Differs(f"not done after {BLOCK_S} s")

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(BLOCK_S)
    try:
        yield
    finally:
        signal.alarm(0)


def commands(text: str) -> list[str]:
    """Return a shell block's commands; a backslash at the end of a line continues it."""
    lines = text.replace("\\\n", "").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def targets() -> set[str]:
    """Return the targets of the Makefile."""
    return set(TARGET.findall((ROOT / "Makefile").read_text()))


def compare(printed: str, expected: str) -> None:
    """Raise Differs unless the output matches the page."""
    parts = []
    for line in expected.splitlines():
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            words = re.escape(line.rstrip()).replace(r"\.\.\.", ".*?")
            parts.append(words + r"[ \t]*\n")
    if not re.fullmatch("".join(parts), printed if printed.endswith("\n") else printed + "\n"):
        raise Differs(f"the page shows\n{expected}and this is printed:\n{printed}")


def check_config(text: str) -> None:
    """Raise Differs for settings that a node would reject."""
    from quorumlog.errors import QuorumlogError
    from quorumlog.server.config import parse_toml

    try:
        parse_toml(text, source="the page")
    except QuorumlogError as error:
        raise Differs(str(error)) from None


def spark_session() -> Any:
    """Return the Spark session of this process, if there is one."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def play(page: Path, *, with_spark: bool) -> int:
    """Run a page in a new folder and return the exit code."""
    player = Player(with_spark=with_spark)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        try:
            for block in blocks_of(page):
                if block.not_run:
                    continue
                try:
                    player.play(block)
                except Exception as error:
                    if not isinstance(error, Differs):
                        traceback.print_exc()
                    print(f"{page.name}:{block.line}: {error}", file=sys.stderr)
                    return 1
        finally:
            player.close()
    return 0


def main() -> int:
    """Run the pages of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("pages", type=Path, nargs="+", metavar="PAGE")
    parser.add_argument("--spark", action="store_true", help="run what needs Spark too")
    parser.add_argument("--list", action="store_true", help="only print the blocks, as JSON")
    arguments = parser.parse_args()
    pages = [page.resolve() for page in arguments.pages]
    if arguments.list:
        print(json.dumps([asdict(block) for page in pages for block in blocks_of(page)]))
        return 0
    try:
        return max(play(page, with_spark=arguments.spark) for page in pages)
    finally:
        if (spark := spark_session()) is not None:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
