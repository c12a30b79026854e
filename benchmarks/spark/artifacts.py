"""The Spark that has a Kafka connector: its Python package and the connector's jars, in the cache.

Run: python -m benchmarks.spark.artifacts
The connector of the newest Spark appears later than that Spark, so this one is older.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.kafka_wire.artifacts import cache

SPARK_VERSION: Final = "4.2.0"
GET: Final = "get it by `python -m benchmarks.spark.artifacts`"
POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>benchmark</groupId>
  <artifactId>connector</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId>
      <artifactId>spark-sql-kafka-0-10_2.13</artifactId>
      <version>{SPARK_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def connector_jars() -> list[Path]:
    """Return the jars of the connector; empty if they are not fetched."""
    return sorted((_folder() / "jars").glob("*.jar"))


def connector_environment() -> dict[str, str]:
    """Return the environment in which Python imports the Spark of the connector."""
    path = [str(_folder() / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def is_here() -> bool:
    """Return True if the connector and its Spark are fetched."""
    return bool(connector_jars()) and (_folder() / "python" / "pyspark").is_dir()


def _folder() -> Path:
    return cache() / f"spark-{SPARK_VERSION}"


def main() -> int:
    """Fetch what is missing; each part appears when it is complete."""
    if not connector_jars():
        partial = _folder() / "jars.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / "pom.xml").write_text(POM)
        command = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
        subprocess.run(command, cwd=partial, check=True)
        partial.rename(_folder() / "jars")
    if not is_here():
        partial = _folder() / "python.partial"
        shutil.rmtree(partial, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        command += ["--target", str(partial), f"pyspark=={SPARK_VERSION}"]
        subprocess.run(command, check=True)
        partial.rename(_folder() / "python")
    print(f"fetched into {_folder()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
