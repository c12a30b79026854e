"""The wheel and the source distribution: their content, and their use in an empty environment.

Both are built once, the wheel from the source distribution, and installed into virtual environments
that the tests create. Dependencies come from pip's cache of `make setup` if possible.
"""

import email.parser
import json
import re
import resource
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from tests.kit.distributions import (
    Environment,
    build,
    copy_repository,
    install,
    repository_files,
    run,
    succeed,
)

import quorumlog

ROOT = Path(__file__).parents[2]
# In starts of a bare Python: bounds for a busy and for a slow machine. The goals are checked by
# benchmarks/startup.py: 0.15 s and 0.03 s, where Python takes PYTHON_CPU_S.
PYTHON_CPU_S = 0.015
HELP_STARTS_MAX = 0.6 / PYTHON_CPU_S
IMPORT_STARTS_MAX = 0.1 / PYTHON_CPU_S
ROUNDS = 5
ENTRANCES = {"pyspark_quorumlog.py", "pytest_quorumlog.py"}  # entry points of Spark and pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]


# --- building and installing ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Distributions:
    """The built distributions."""

    wheel: Path
    sdist: Path
    sources: Path  # the source distribution, unpacked


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Build the wheel and the source distribution from a clean copy of the repository."""
    folder = tmp_path_factory.mktemp("distributions")
    source = folder / "repository"
    copy_repository(source)
    build(source, folder / "dist")
    (wheel,) = folder.glob("dist/*.whl")
    (sdist,) = folder.glob("dist/*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return Distributions(
        wheel=wheel, sdist=sdist, sources=folder / sdist.name.removesuffix(".tar.gz")
    )


@pytest.fixture(scope="session")
def installed(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Create an environment with the wheel and its dependencies only."""
    return install(built.wheel, tmp_path_factory.mktemp("installed") / "venv")


# --- content -------------------------------------------------------------------------------------


def test_the_wheel_holds_the_package_and_nothing_else(built: Distributions) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    info = f"quorumlog-{quorumlog.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"quorumlog", *ENTRANCES, info}
    extensions = (
        r"quorumlog/(native/_fetch|native/_produce|records/_codec|runtime/_sender)\.\S+\.so"
    )
    compiled = {name for name in names if re.fullmatch(extensions, name)}
    assert len(compiled) == 4, "two modules of native, the codec and the sender"
    modules = {
        re.sub(r"^src/", "quorumlog/", re.sub(r"^spark/", "quorumlog/spark/", name))
        for name in repository_files("src", "spark")
        if name.endswith((".py", ".pyi", "py.typed"))
        or name.startswith(("src/console/static/", "src/console/templates/"))
    }
    packaged = {name for name in names if not name.startswith(info)} - compiled
    assert packaged == modules | ENTRANCES


def test_the_source_distribution_has_all_its_sources(built: Distributions) -> None:
    with tarfile.open(built.sdist) as archive:
        members = archive.getmembers()
    names = {member.name.split("/", 1)[1] for member in members if member.isfile()}
    assert not [member.name for member in members if member.issym() or member.islnk()]
    records = {f".pkg/quorumlog/{name[4:]}" for name in repository_files("src/records/*.p[yx]*")}
    assert len([name for name in records if name.endswith((".pyx", ".pxi"))]) > 1
    assert records | set(repository_files("proto", "docs/*.md", "examples", "benchmarks")) <= names
    assert {"README.md", "LICENSE", "CHANGELOG.md", "ARCHITECTURE.md", "PKG-INFO"} <= names
    compiled = {name for name in names if name.endswith((".c", ".so", ".pyc"))}
    assert compiled == set(repository_files("benchmarks/*.c"))  # written by hand
    hidden = {name for name in names if "/." in name or name.startswith((".git", ".venv"))}
    assert hidden == {"examples/nodejs/.npmrc"}


def test_the_source_distribution_names_its_build_tools(built: Distributions) -> None:
    build_system = tomllib.loads((built.sources / "pyproject.toml").read_text())["build-system"]
    assert {Requirement(one).name for one in build_system["requires"]} == {"setuptools", "cython"}


def test_the_metadata_is_valid_and_its_page_renders(built: Distributions) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        info = f"quorumlog-{quorumlog.__version__}.dist-info"
        raw = archive.read(f"{info}/METADATA")
        assert f"{info}/licenses/LICENSE" in archive.namelist()
        assert b"quorumlog = quorumlog.cli.__main__:main" in archive.read(
            f"{info}/entry_points.txt"
        )
    metadata = Metadata.from_email(raw, validate=True)
    assert (metadata.name, str(metadata.version)) == ("quorumlog", quorumlog.__version__)
    assert (metadata.license_expression, str(metadata.requires_python)) == ("Apache-2.0", ">=3.11")
    assert {"spark", "dev"} <= set(metadata.provides_extra or ())
    assert metadata.description_content_type == "text/markdown"
    page = MarkdownIt().enable("table").render(metadata.description or "")
    assert "<h1>quorumlog</h1>" in page
    assert "<a " not in page, "relative links do not work on that page"
    text = email.parser.BytesHeaderParser().parsebytes(raw).as_string()
    assert not re.search(r"\bpypi|pythonhosted|conda\.org", text, re.IGNORECASE)
    uvloop = next(one for one in metadata.requires_dist or () if one.name == "uvloop")
    assert uvloop.marker is not None
    assert not uvloop.marker.evaluate({"sys_platform": "win32"})
    assert uvloop.marker.evaluate({"sys_platform": "linux"})


def test_the_package_page_has_the_programs_of_the_first_page() -> None:
    block = re.compile(r"```.*?```", re.DOTALL)
    first, packages = (ROOT / "README.md").read_text(), (ROOT / "docs/package_page.md").read_text()
    programs = [
        one
        for one in block.findall(first)
        if one.startswith("```python") and re.search(r"(import|from) quorumlog", one)
    ]
    assert len(programs) == 3
    assert block.findall(packages) == programs


# --- an empty environment ------------------------------------------------------------------------


def test_an_empty_environment_gets_the_command_and_the_package(installed: Environment) -> None:
    code = "import quorumlog, quorumlog.records as r; print(quorumlog.__file__, r.COMPILED)"
    file, compiled = succeed(installed.python, "-W", "error", "-c", code).split()
    assert Path(file).is_relative_to(installed.site_packages)
    assert compiled == "True"
    version = succeed(installed.command, "--version").split()
    assert version == ["quorumlog", quorumlog.__version__]
    code = "from importlib.metadata import version; print(version('quorumlog'))"
    assert succeed(installed.python, "-c", code).strip() == quorumlog.__version__
    ours = [path.name for path in installed.site_packages.iterdir() if "quorumlog" in path.name]
    info = f"quorumlog-{quorumlog.__version__}.dist-info"
    assert sorted(ours) == sorted([*ENTRANCES, "quorumlog", info])
    assert not (installed.site_packages / "tests").exists()


PROGRAM = """
import quorumlog

def main() -> int:
    with quorumlog.connect("127.0.0.1:9094") as log:
        with log.producer(acks="all") as producer:
            offset: int = producer.send("flights", key=b"UA", value=b"x").result().offset
        values = [record.value for record in log.consumer("flights", until_end=True)]
    reveal_type(values)
    return offset
"""


@pytest.mark.long
def test_a_users_program_is_type_checked(installed: Environment, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    checker = Path(sys.executable).with_name("mypy")
    options: tuple[str | Path, ...] = ("--strict", "--cache-dir", tmp_path / "cache")
    options = (*options, "--python-executable", installed.python)
    said = succeed(checker, *options, "program.py", cwd=tmp_path)
    assert 'Revealed type is "list[bytes | None]"' in said.replace("builtins.", "")
    (tmp_path / "wrong.py").write_text(PROGRAM.replace('acks="all"', "acks=object()"))
    assert run(checker, *options, "wrong.py", cwd=tmp_path).returncode == 1


@contextmanager
def node(environment: Environment, folder: Path) -> Iterator[str]:
    """Start a node by the environment's command; yield its address for clients."""
    command: Sequence[str | Path] = (environment.command, "dev", "--output", "json")
    command = (*command, "--data-dir", folder, "--grpc-port", "0", "--controller-port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder.parent) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["grpc"]
        finally:
            process.terminate()


def examples() -> list[str]:
    """Return the Python blocks of the first page that need this package and no Spark."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [block for block in blocks if "import quorumlog" in block and "spark" not in block]


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_the_first_pages_example_works_when_pasted(
    installed: Environment, tmp_path: Path, face: str
) -> None:
    (program,) = [block for block in examples() if ("asyncio" in block) == (face == "asyncio")]
    with node(installed, tmp_path / "data") as address:
        assert "127.0.0.1:9094" in program
        pasted = program.replace("127.0.0.1:9094", address)
        said = succeed(installed.python, "-W", "error", "-c", pasted, cwd=tmp_path)
    assert """0 b'UA' b'{"dest": "ORD"}'""" in said


@pytest.mark.long
def test_without_a_compiler_it_installs_works_and_warns_once(
    built: Distributions, installed: Environment, tmp_path: Path
) -> None:
    build(built.sources, tmp_path / "dist", "--wheel", CC="/bin/false")
    (wheel,) = tmp_path.glob("dist/*.whl")
    environment = install(wheel, tmp_path / "venv", dependencies=False)
    environment.borrow(installed.site_packages)
    with node(environment, tmp_path / "data") as address:
        code = next(block for block in examples() if "asyncio" not in block)
        done = run(environment.python, "-c", code.replace("127.0.0.1:9094", address))
    assert done.returncode == 0, done.stderr
    assert """0 b'UA' b'{"dest": "ORD"}'""" in done.stdout
    assert done.stderr.count("RuntimeWarning: The record codec runs in plain Python") == 1


def cpu_s(*command: str | Path) -> float:
    """Return the least CPU time of a command in seconds, of several runs after the first."""
    succeed(*command)
    seconds = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        succeed(*command)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


@pytest.mark.long
def test_the_command_and_the_import_start_quickly(installed: Environment) -> None:
    bare = cpu_s(installed.python, "-c", "")
    start = max(bare, PYTHON_CPU_S)
    assert cpu_s(installed.command, "--help") < HELP_STARTS_MAX * start
    assert cpu_s(installed.python, "-c", "import quorumlog") - bare < IMPORT_STARTS_MAX * start
