"""The jars of Apache Kafka, by Maven or from a folder; without them tests are skipped with the
reason.

Maven resolves them by its own settings, once, into build/kafka (about 55 MB); no file of them is
part of the project. The folder `libs` of a Kafka distribution may be used instead.
"""

import fcntl
import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

VERSION = "4.3.1"
LOG4J = "2.25.4"
JARS_VARIABLE = "QUORUMLOG_KAFKA_JARS"
RESOLVE_S = 200
FOLDER = Path(__file__).parents[2] / "build" / "kafka" / VERSION
HOW = (
    "these tests need a real Kafka: install Java 17 or newer and Maven, or set "
    f"{JARS_VARIABLE} to a folder that holds its jars (`libs` of a distribution)"
)
DEPENDENCIES = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J),  # so that Kafka writes logs
)
POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>quorumlog</groupId>
  <artifactId>interop</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = (
    "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "</dependency>"
)


@functools.cache
def java_command() -> tuple[str, ...]:
    """Return the command that runs a class of Kafka, without the class. Skip the test if it is
    impossible."""
    java = shutil.which("java")
    if java is None:
        pytest.skip(f"java is not on the PATH; {HOW}")
    given = os.environ.get(JARS_VARIABLE)
    folder = Path(given) if given else _resolved()
    if not list(folder.glob("kafka-storage-*.jar")):
        pytest.skip(f"{folder} holds no jars of Kafka 4; {HOW}")
    return (java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{folder}/*")


def _resolved() -> Path:
    """Return the folder that Maven fills, one process at a time."""
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with (FOLDER.parent / f"{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not FOLDER.exists():
            _resolve()
    return FOLDER


def _resolve() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip(f"mvn is not on the PATH; {HOW}")
    fresh = FOLDER.with_suffix(".fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    pom = fresh / "pom.xml"
    pom.write_text(
        POM.format(dependencies="\n".join(DEPENDENCY.format(*names) for names in DEPENDENCIES))
    )
    command = [maven, "--quiet", "--batch-mode", "--file", str(pom)]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    command += [f"-DoutputDirectory={fresh}"]
    try:
        finished = subprocess.run(
            command, cwd=fresh, capture_output=True, text=True, timeout=RESOLVE_S, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"Maven did not fetch Kafka's jars within {RESOLVE_S} s; {HOW}")
    if finished.returncode != 0:
        pytest.skip(f"Maven cannot fetch Kafka's jars ({finished.stdout[-300:].strip()}); {HOW}")
    fresh.rename(FOLDER)
