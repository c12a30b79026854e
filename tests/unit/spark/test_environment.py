"""Detection of Java and of a worker's Python, and light imports."""

import subprocess
import sys
from pathlib import Path

import pytest

from quorumlog.errors import EnvironmentUnusable
from quorumlog.spark.sessions import check_worker_python, find_java, java_version


def make_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return home


def test_java_home_is_taken_when_it_is_new_enough(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "21.0.2")
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_old_java_home_is_ignored_for_the_java_on_the_path(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_402")
    new = make_java(tmp_path / "new", "17.0.15")
    assert java_version(old) == 8
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_a_java_of_the_user_is_found(tmp_path: Path) -> None:
    home = make_java(tmp_path / ".sdkman/candidates/java/99-x", "99")
    usual = {"HOME": str(tmp_path), "PATH": ""}
    assert java_version(find_java(usual)) in {java_version(home), 17, 21, 25}


def test_the_release_file_of_a_java_has_its_version(tmp_path: Path) -> None:
    """Starting a Java for its version takes a third of a second."""
    home = make_java(tmp_path / "jdk", "1.8.0_402")
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.2"\n')
    assert java_version(home) == 21
    (home / "release").write_text('JAVA_VERSION="1.7.0_80"\n')
    assert java_version(home) == 7
    (home / "release").write_text("nothing of the kind\n")
    assert java_version(home) == 8
    (home / "release").write_text('JAVA_VERSION="21.0.2"\n')
    (home / "bin" / "java").unlink()
    assert java_version(home) is None


def test_program_that_does_not_run_is_no_java(tmp_path: Path) -> None:
    assert java_version(tmp_path) is None


def test_missing_and_old_java_are_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorumlog.spark.sessions._USUAL_PLACES", ())
    with pytest.raises(EnvironmentUnusable, match="needs Java 17 or later, but no Java was found"):
        find_java({"PATH": ""})
    old = make_java(tmp_path / "old", "11.0.1")
    with pytest.raises(EnvironmentUnusable, match=r"but .*/old has 11; install one"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


def test_this_python_can_run_workers(tmp_path: Path) -> None:
    check_worker_python(sys.executable)
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    check_worker_python(str(other))


def test_a_python_that_does_not_start_is_named() -> None:
    with pytest.raises(EnvironmentUnusable, match="'/no/python', which does not start"):
        check_worker_python("/no/python")


def test_a_python_without_the_packages_is_named(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(EnvironmentUnusable, match=r"cannot import .*pyarrow.*PYSPARK_PYTHON"):
        check_worker_python(str(bare))


@pytest.mark.slow
def test_the_module_that_spark_imports_everywhere_is_light() -> None:
    """Spark imports every pyspark_* package of an environment for any query."""
    program = (
        "import pyspark.sql.datasource, sys; before = set(sys.modules); import pyspark_quorumlog;"
        "new = {name.split('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new & {'grpc', 'pyarrow', 'pandas', 'uvloop', 'rich', 'cramjam'}),"
        " pyspark_quorumlog.DefaultSource.name(), pyspark_quorumlog.DefaultSource.__module__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[] quorumlog quorumlog.spark.source\n"


@pytest.mark.slow
def test_tasks_of_spark_import_no_producer_and_no_group_member() -> None:
    program = (
        "import sys, quorumlog.spark.tasks, quorumlog.spark.batch_reader, quorumlog.spark.plan;"
        "print([name for name in sys.modules if name.startswith(('quorumlog.clients.producer',"
        " 'quorumlog.clients.groups', 'quorumlog.clients.admin', 'quorumlog.clients.log'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        "schema()",
        "reader(None)",
        "streamReader(None)",
        "writer(None, False)",
        "streamWriter(None, False)",
    ],
)
def test_broken_installation_does_not_break_other_data_sources(call: str) -> None:
    program = (
        "import sys; sys.modules['quorumlog.spark.source'] = None;"
        "import pyspark_quorumlog as p\n"
        f"try: p.DefaultSource({{}}).{call}\n"
        "except ImportError as error: print(p.DefaultSource.name(), error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("quorumlog quorumlog cannot be imported in Spark's Python (")
