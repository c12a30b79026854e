"""Configuration of Spark sessions for the source, with checks of Java and Python.

Spark's launcher uses JAVA_HOME, else `java` on the path, and fails with obscure errors if it is
missing or too old. `find_java` also searches the usual folders and raises one clear error. pyspark
is imported inside the functions, so that importing `quorumlog.spark` is cheap and succeeds without
Spark.
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quorumlog.errors import EnvironmentUnusable
from quorumlog.runtime.child_environment import child_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_BYTES_PER_BATCH: Final = ("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))
"""Spark measures an Arrow batch after each row to keep it below this, and measuring an array column
is linear in the batch: at the default, writing a column of headers is quadratic. At the greatest
value it does not measure."""

UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
"""Makes Spark and its Python workers use a Unix socket instead of TCP: about a third more rows per
second, from Spark 4.1. Must be set before the session starts."""

REDACTION: Final = ("spark.sql.redaction.string.regex", r"(?i)password\s*=.*")
"""The server of a Spark Connect session shows requests with all options in its UI and its event
log. This config hides a password of `kafka.sasl.jaas.config` there."""

JAVA_VERSION_MIN: Final = 17
_USUAL_PLACES: Final = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)
_START_SECONDS_MAX: Final = 20

_NEEDED: Final = ("quorumlog", "pyspark", "pyarrow", "pandas", "grpc")


def session(
    app_name: str = "quorumlog",
    *,
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Return a configured session on this machine whose workers run this Python interpreter.

    Works from a virtual environment that is not activated: PYSPARK_PYTHON becomes this
    interpreter unless it is set, and JAVA_HOME a Java of 17 or later, both in this process's
    environment. With a `local` master the driver listens on 127.0.0.1 only. Spark's web UI is off.
    `config` overrides these settings. Raises EnvironmentUnusable.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise EnvironmentUnusable(
            f"PySpark cannot be imported ({error}); install quorumlog with its extra: "
            "pip install 'quorumlog[spark]'"
        ) from error
    os.environ["JAVA_HOME"] = str(find_java(os.environ))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {UNIX_SOCKETS: "true", "spark.ui.enabled": "false"}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in (settings | dict(config or {})).items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    configure(spark)
    return spark


def configure(spark: "SparkSession") -> None:
    """Register the source `quorumlog` with a session and set the required configs.

    Checks the driver's Java and the workers' Python, and warns about slow settings. The server of a
    Spark Connect session cannot be checked. Raises EnvironmentUnusable.
    """
    from pyspark.errors import AnalysisException

    from quorumlog.spark.source import QuorumlogSource

    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        _check_driver(spark)
    elif spark.conf.get(REDACTION[0], None) is None:
        spark.conf.set(*REDACTION)
    spark.conf.set(*MAX_BYTES_PER_BATCH)
    try:
        spark.dataSource.register(QuorumlogSource)
    except AnalysisException as error:  # Spark 4.0 found the source by itself
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def _check_driver(spark: "SparkSession") -> None:
    from quorumlog.spark.versions import HAS_UNIX_SOCKETS

    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None, "a session that is not Spark Connect's has a JVM"
    version = str(jvm.System.getProperty("java.version"))
    major = version.removeprefix("1.").split(".")[0].split("-")[0]
    if int(major) < JAVA_VERSION_MIN:
        raise EnvironmentUnusable(
            f"Spark runs on Java {version} and needs {JAVA_VERSION_MIN} or later; set JAVA_HOME "
            "before the session starts"
        )
    check_worker_python(context.pythonExec)
    if HAS_UNIX_SOCKETS and context.getConf().get(UNIX_SOCKETS, "false") != "true":
        warnings.warn(
            f"{UNIX_SOCKETS} is off: reading is about a third faster with it; set it to true "
            "before the session starts, or start it by quorumlog.spark.session()",
            stacklevel=3,
        )


def check_worker_python(executable: str) -> None:
    """Raise EnvironmentUnusable if an interpreter cannot run Spark workers.

    It must start, have this interpreter's minor version, and find quorumlog, pyspark, pyarrow,
    pandas and grpc.
    """
    if executable == sys.executable and all(map(importlib.util.find_spec, _NEEDED)):
        return  # no process to start; its environment is this one's
    probe = (
        "import importlib.util as u, json, sys; print(json.dumps([list(sys.version_info[:2]), "
        f"[m for m in {_NEEDED!r} if u.find_spec(m) is None]]))"
    )
    remedy = (
        "set PYSPARK_PYTHON to an interpreter that has quorumlog[spark] before the session "
        "starts, or start it by quorumlog.spark.session()"
    )
    try:
        result = subprocess.run(
            [executable, "-c", probe],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=child_environment(os.environ),
        )
        version, missing = json.loads(result.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise EnvironmentUnusable(
            f"Spark's workers would run {executable!r}, which does not start ({error}); {remedy}"
        ) from error
    if missing:
        raise EnvironmentUnusable(
            f"Spark's workers would run {executable!r}, which cannot import "
            f"{', '.join(missing)}; {remedy}"
        )
    if tuple(version) != sys.version_info[:2]:
        mine = ".".join(str(number) for number in sys.version_info[:2])
        raise EnvironmentUnusable(
            f"Spark's workers would run {executable!r}, Python {version[0]}.{version[1]}, and "
            f"this is Python {mine}; {remedy}"
        )


# --- Java ----------------------------------------------------------------------------------------


def find_java(environment: Mapping[str, str]) -> Path:
    """Return the home of Java 17 or later: JAVA_HOME, else that of `java` on the path, else one in
    a usual folder. Raise EnvironmentUnusable."""
    seen: dict[Path, int | None] = {}
    for home in _candidates(environment):
        if home in seen:
            continue
        seen[home] = java_version(home)
        if (seen[home] or 0) >= JAVA_VERSION_MIN:
            return home
    old = [f"{home} has {version}" for home, version in seen.items() if version is not None]
    raise EnvironmentUnusable(
        f"Spark needs Java {JAVA_VERSION_MIN} or later, "
        + (f"but {' and '.join(old)}" if old else "but no Java was found")
        + f"; install one, for example openjdk-{JAVA_VERSION_MIN}-jre-headless, and set JAVA_HOME"
    )


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in a home (8 for "1.8"), None if it does not run."""
    with contextlib.suppress(OSError):  # without the file, or for another layout, ask the program
        match = re.search(r'^JAVA_VERSION="(?:1\.)?([0-9]+)', (home / "release").read_text(), re.M)
        if match and os.access(home / "bin" / "java", os.X_OK):
            return int(match[1])
    try:
        result = subprocess.run(
            [str(home / "bin" / "java"), "-version"],
            capture_output=True,
            text=True,
            timeout=_START_SECONDS_MAX,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?([0-9]+)', result.stderr + result.stdout)
    return int(match[1]) if match else None


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    places = [*_USUAL_PLACES]
    if environment.get("HOME"):
        places += [f"{environment['HOME']}/.sdkman/candidates/java/*"]
        places += [f"{environment['HOME']}/.jdks/*"]
    for place in places:
        for home in sorted(Path("/").glob(place.removeprefix("/")), reverse=True):
            yield home.resolve()
