"""The compiled modules with all drawn mutants, in a package beside the tested one.

One binary has many mutants: its variable `ql_mutant` selects one, 0 none, and `ql_seen` records
which were reached. The environment's QL_MUTANT selects one before the module is imported.
"""

import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .native_mutants import NativeMutant, mutants_of, names_in, selected

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / ".pkg" / "quorumlog"
MODULES: Final = {
    "native._produce": ("native/_produce.pyx", "native/_produce.pxd"),
    "native._fetch": ("native/_fetch.pyx",),
    "records._codec": (
        "records/_codec.pyx",
        *(
            f"records/_codec_{part}.pxi"
            for part in ("memory", "read", "build", "write", "partition", "hash", "clean", "check")
        ),
    ),
    "runtime._sender": ("runtime/_sender.pyx",),
}
"""The sources of each compiled module."""

USED: Final = {"native._fetch": ("native/_produce.pxd",)}
"""Sources of other modules that a module has a copy of."""

SANITIZERS: Final = (
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    *("-fno-omit-frame-pointer", "-g"),
)
SELECTOR: Final = """
int ql_mutant = 0;
char *getenv(const char *);
int atoi(const char *);
__attribute__((constructor)) static void ql_select(void) {{
    const char *given = getenv("QL_MUTANT");
    if (given) ql_mutant = atoi(given);
}}
unsigned char ql_seen[{count}];
static inline int ql_is(int number) {{
    ql_seen[number] = 1;
    return ql_mutant == number;
}}
"""
DECLARED: Final = "cdef extern from *:\n    bint ql_is(int number) noexcept nogil\n\n"
Drawn = Mapping[int, NativeMutant]


def all_mutants() -> dict[int, NativeMutant]:
    """Return every mutant of every module by its number, from 1."""
    found: list[NativeMutant] = []
    for files in MODULES.values():
        sources = {file: (PACKAGE / file).read_text() for file in files}
        names = frozenset[str]().union(*map(names_in, sources.values()))
        for file, source in sources.items():
            found += mutants_of(file, source, names)
    return dict(enumerate(found, 1))


def build(folder: Path, drawn: Drawn, *, count: int, sanitized: bool = False) -> frozenset[int]:
    """Build the package in `folder`; return the mutants that a compiler refuses, none if the
    package is complete. `count` is that of all mutants. Unchanged files are not translated
    again."""
    if not folder.exists():
        _lay_out(folder / "quorumlog")
    selector = folder / "selector.h"
    selector.write_text(SELECTOR.format(count=count + 1))
    refused: set[int] = set()
    cython = Path(sys.executable).with_name("cython")
    for files in MODULES.values():
        for file in files:
            _write(folder / "quorumlog" / file, file, drawn)
    for module, files in MODULES.items():
        source, made = (folder / "quorumlog" / files[0], _c_of(folder / "quorumlog" / files[0]))
        used = (*files, *USED.get(module, ()))
        newest = max((folder / "quorumlog" / file).stat().st_mtime_ns for file in used)
        if not made.exists() or made.stat().st_mtime_ns < newest:
            found = _made(folder, [cython, "-3", source, "-o", made])
            refused |= found
            if found:
                made.unlink(missing_ok=True)
    if refused:
        return frozenset(refused)
    flags = ["-O1", *(SANITIZERS if sanitized else ())]
    for files in MODULES.values():
        source = folder / "quorumlog" / files[0]
        binary = source.with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
        command = ["cc", "-shared", "-fPIC", "-w", *flags, "-include", selector]
        command += [f"-I{sysconfig.get_path('include')}", _c_of(source), "-o", binary]
        refused |= _made(folder, command)
    return frozenset(refused)


def _c_of(source: Path) -> Path:
    return source.with_suffix(".c")


def _lay_out(package: Path) -> None:
    """Link the package's files, without those of the compiled modules."""
    left_out = {file for files in MODULES.values() for file in files}
    prefixes = tuple(f"{module.replace('.', '/')}." for module in MODULES)
    folders = {file.split("/")[0] for file in left_out}
    package.mkdir(parents=True)
    for original in PACKAGE.iterdir():
        if original.name not in folders and original.name != "__pycache__":
            (package / original.name).symlink_to(original)
    for folder in folders:
        (package / folder).mkdir()
        for original in (PACKAGE / folder).iterdir():
            file = f"{folder}/{original.name}"
            is_made = file.startswith(prefixes) and original.suffix in (".c", ".so")
            if not (is_made or file in left_out or original.name == "__pycache__"):
                (package / file).symlink_to(original)


def _write(path: Path, file: str, drawn: Drawn) -> None:
    source = (PACKAGE / file).read_text()
    source = selected(
        source, ((number, each) for number, each in drawn.items() if each.file == file)
    )
    if not file.endswith(".pxi") and file != "native/_produce.pyx":  # that has those of its .pxd
        first = re.search(r"^(from|cdef|cimport) ", source, re.MULTILINE)
        assert first is not None
        source = source[: first.start()] + DECLARED + source[first.start() :]
    if not path.exists() or path.read_text() != source:
        path.write_text(source)


def _made(folder: Path, command: list[str | Path]) -> set[int]:
    """Run a compiler; return the mutants on the lines with errors."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode == 0:
        return set()
    refused = set()
    for file, line in re.findall(r"^(\S+?):(\d+):\d+: (?!warning|note)", done.stderr, re.MULTILINE):
        path = next(each for each in (folder / file, folder / "quorumlog" / file) if each.exists())
        text = path.read_text().splitlines()[int(line) - 1]
        refused |= {int(number) for number in re.findall(r"\bql_is\((\d+)\)", text)}
    assert refused, f"{command[0]} refuses the sources without a mutant: {done.stderr[-3_000:]}"
    return refused
