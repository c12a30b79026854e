"""The workflows for hosted CI name existing commands, files and jobs: they cannot run here."""

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
SYSTEMS = ("ubuntu-", "macos-", "windows-")
MADE_BY_THE_WORKFLOW = ("dist", "wheelhouse", ".venv/")


def load(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    return content


def steps(workflow: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def looks_like_a_path(word: str) -> bool:
    return "/" in word and "$" not in word and not word.startswith(MADE_BY_THE_WORKFLOW)


def test_there_is_a_workflow_for_merges_and_one_for_wheels() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "wheels.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_need_jobs_that_exist_and_run_on_a_known_system(path: Path) -> None:
    jobs = load(path)["jobs"]
    for job in jobs.values():
        needs = job.get("needs", [])
        wanted = {needs} if isinstance(needs, str) else set(needs)
        assert wanted <= set(jobs)
        machines = [job["runs-on"]]
        if machines == ["${{ matrix.machine }}"]:
            machines = job["strategy"]["matrix"]["machine"]
        assert all(machine.startswith(SYSTEMS) for machine in machines), machines


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_command_names_existing_files_and_targets(path: Path) -> None:
    installed: set[str] = set()
    seen = 0
    for step in steps(load(path)):
        if "run" not in step:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]), step
            continue
        command, *words = shlex.split(step["run"])
        seen += 1
        match [command, *words]:
            case ["make", target]:
                assert target in make_targets()
            case ["python", "-m", "pip", "install", *names]:
                installed.update(names)
            case ["python", "-m", module, *_]:
                assert module in installed
            case _:
                pass  # its words are checked below
        for word in [command, *words]:
            if looks_like_a_path(word):
                assert (ROOT / word).exists(), step
        if command.startswith(".venv/bin/"):
            assert find_spec(command.rpartition("/")[2])
    assert seen


def test_a_tag_publishes_the_checked_files_by_trusted_publishing() -> None:
    workflow = load(ROOT / ".github/workflows/wheels.yml")
    publish = workflow["jobs"]["publish"]
    assert publish["needs"] == "check"
    assert "refs/tags/v" in publish["if"]
    assert publish["permissions"] == {"id-token": "write"}
    text = (ROOT / ".github/workflows/wheels.yml").read_text()
    assert not re.search(r"secrets\.|password|pypi|https?:", text, re.IGNORECASE)


def test_wheels_are_built_for_every_supported_system_and_python() -> None:
    job = load(ROOT / ".github/workflows/wheels.yml")["jobs"]["wheels"]
    machines = job["strategy"]["matrix"]["machine"]
    for one in ("ubuntu-24.04", "ubuntu-24.04-arm", "macos-15-intel", "macos-15", "windows-2025"):
        assert one in machines
    settings = pyproject()
    prefix = "Programming Language :: Python :: 3."
    classifiers = settings["project"]["classifiers"]
    minors = [one.removeprefix(prefix) for one in classifiers if one.startswith(prefix)]
    assert settings["tool"]["cibuildwheel"]["build"] == [f"cp3{minor}-*" for minor in minors]
    pythons = load(ROOT / ".github/workflows/ci.yml")["jobs"]["pythons"]
    tested = ["3.11", *pythons["strategy"]["matrix"]["python"]]
    assert tested == [f"3.{minor}" for minor in minors]


def test_the_tests_of_a_wheel_are_in_the_source_distribution() -> None:
    settings = pyproject()["tool"]["cibuildwheel"]
    pruned = re.findall(r"^prune (\S+)", (ROOT / "MANIFEST.in").read_text(), re.MULTILINE)
    paths = [
        word
        for part in (settings, settings["windows"])
        for word in shlex.split(part["test-command"])
        if looks_like_a_path(word)
    ]
    assert len(paths) > 3
    for path in paths:
        assert (ROOT / path).is_dir()
        assert path not in pruned
        assert path.split("/")[0] in settings["test-sources"]


def test_ci_runs_the_checks_of_the_first_page() -> None:
    script = (ROOT / ".ci/run").read_text()
    targets = set(re.findall(r"make --no-print-directory ([a-z-]+)", script))
    promised = {"setup", "lint", "types", "proto-check", "demo", "test", "test-plain", "sanitize"}
    # made before `make test`, which needs it
    assert promised | {"browser", "prometheus", "spark-oldest"} == targets
    assert targets <= make_targets()


def test_make_help_lists_every_target() -> None:
    said = subprocess.check_output(["make", "--no-print-directory", "help"], cwd=ROOT, text=True)
    listed = {line.split()[0] for line in said.splitlines()}
    assert listed == make_targets()
    assert all(len(line.split()) > 2 for line in said.splitlines())
