"""Lookup of the Java installation for Spark.

Spark's launcher uses JAVA_HOME, else `java` on the path, and fails with obscure errors if it is
missing or too old. This module also searches the usual folders and reports one clear error.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from quorumlog.errors import EnvironmentUnusable

JAVA_VERSION_MIN: Final = 17
_USUAL_PLACES: Final = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)
_START_SECONDS_MAX: Final = 20


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
