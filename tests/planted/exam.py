"""The exam: bugs planted by an author without knowledge of the tests, none discarded.

Half of the patches, `tests/planted/exam`, are open. The others are encrypted in `sealed.bin` beside
them; they are read once, with `--key FILE`, when checkers, faults and seeds no longer change. A
patch is run by every level, the cheapest first, with the seeds of CI or `--times` as many, until
one fails.

Run: python -m tests.planted.exam [PATCH ...] [--times 10] [--key FILE]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.mutation.cores import CI_SEEDS, seeds_of

from .track_record import FOLDER, ROOT

EXAM: Final = FOLDER / "exam"
RESULTS: Final = ROOT / "build" / "exam.json"
WALL_S_MAX: Final = 3_600  # of one level


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A patch, and the level and seed that found it."""

    name: str
    rule: str
    level: str  # "": none found it
    seed: int
    by: str


def open_patches(names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the patches of the open half; all without names."""
    for path in sorted(EXAM.glob("*.patch")):
        if not names or path.stem in names:
            yield path.stem, path.read_text()


def sealed_patches(key: Path) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the sealed half."""
    from cryptography.fernet import Fernet

    content = Fernet(key.read_bytes().strip()).decrypt((EXAM / "sealed.bin").read_bytes())
    for name, text in json.loads(content):
        yield name.removesuffix(".patch"), text


def plant(text: str, folder: Path) -> None:
    """Create a package `quorumlog` in the folder with the patch applied and compiled."""
    ignored = shutil.ignore_patterns("__pycache__", "spark")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
    (folder / "quorumlog").symlink_to("src")
    applied = ["git", "apply", "-C1", "--recount"]
    subprocess.run(applied, input=text, cwd=folder, text=True, check=True)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for source in (folder / "src").glob("*/_*.pyx"):
        if source.read_bytes() == (ROOT / source.relative_to(folder)).read_bytes():
            continue
        made = source.with_suffix(".c")
        cython = Path(sys.executable).with_name("cython")
        subprocess.run([cython, "-3", source, "-o", made], cwd=folder, check=True)
        include = sysconfig.get_path("include")
        command = ["cc", "-shared", "-fPIC", "-O1", "-w", f"-I{include}", str(made)]
        subprocess.run([*command, "-o", str(source.with_name(source.stem + suffix))], check=True)


def answer(name: str, text: str, times: int) -> Answer:
    """Run a patch by each level until one finds it."""
    rule = text.partition("\n")[0].removeprefix("Rule: ")
    with tempfile.TemporaryDirectory() as made:
        plant(text, Path(made))
        environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": made}
        for level in CI_SEEDS:
            seeds = seeds_of(level, times)
            played = subprocess.run(
                [
                    *(sys.executable, "-m", "tests.simulation.hunt", "--level", level),
                    *("--first", str(seeds.start), "--seeds", str(len(seeds))),
                ],
                cwd=ROOT,
                env=environment,
                check=True,
                capture_output=True,
                text=True,
                timeout=WALL_S_MAX * times,
            )
            found: dict[str, Any] | None = json.loads(played.stdout)
            if found is not None:
                return Answer(name=name, rule=rule, level=level, seed=found["seed"], by=found["by"])
    return Answer(name=name, rule=rule, level="", seed=0, by="")


def main() -> int:
    """Run the patches, print and store the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("patches", nargs="*", help="all of the working half when none is named")
    parser.add_argument("--times", type=int, default=1, help="so many times CI's seeds")
    parser.add_argument("--key", type=Path, help="file with the key of the sealed half")
    options = parser.parse_args()
    chosen = sealed_patches(options.key) if options.key else open_patches(options.patches)
    answers = []
    for name, text in chosen:
        answers.append(answer(name, text, options.times))
        print(f"{name:<44} {answers[-1].level or 'not found':<14} {answers[-1].by}", flush=True)
    found = sum(1 for each in answers if each.level)
    print(f"{found} of {len(answers)} found")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(each) for each in answers], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
