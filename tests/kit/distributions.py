"""Wheels of this repository, and virtual environments with them, made without a download."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
WAIT_S = 900


def run(
    *command: str | Path, cwd: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, outside of the repository's import path."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


def succeed(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Run a command that must succeed; return its output."""
    done = run(*command, cwd=cwd, **environment)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def repository_files(*patterns: str) -> list[str]:
    """Return the files that git tracks or would add, relative to the root."""
    listed = succeed(
        *("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns),
        cwd=ROOT,
    )
    return [name for name in listed.splitlines() if os.path.lexists(ROOT / name)]


def copy_repository(folder: Path) -> None:
    """Copy the files of the working tree."""
    for name in repository_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment of a test."""

    folder: Path

    @property
    def python(self) -> Path:
        """Return the path of its interpreter."""
        return self.folder / "bin/python"

    @property
    def command(self) -> Path:
        """Return the path of its command `quorumlog`."""
        return self.folder / "bin/quorumlog"

    @property
    def site_packages(self) -> Path:
        """Return the folder of its packages."""
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def borrow(self, site_packages: Path) -> None:
        """Use the folder of another environment for packages that are missing here."""
        (self.site_packages / "others.pth").write_text(str(site_packages))


def build(source: Path, out: Path, *options: str, **environment: str) -> None:
    """Build distributions with the tools of this environment, without a download. The codec is not
    optimised, which saves half of the compiler's time."""
    environment = {"CFLAGS": "-O0", **environment}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]
    succeed(*command, *options, source, cwd=out.parent, **environment)


def install(wheel: Path, folder: Path, *, dependencies: bool = True) -> Environment:
    """Install a wheel into a new environment, by default with its dependencies."""
    uv = str(Path(sys.executable).with_name("uv"))
    environment = Environment(folder)
    succeed(uv, "venv", "--quiet", "--python", sys.executable, folder)
    command = [uv, "pip", "install", "--quiet", "--python", str(environment.python), str(wheel)]
    command += ["--constraint", str(ROOT / "requirements.lock")] if dependencies else ["--no-deps"]
    if run(*command, "--offline").returncode:
        succeed(*command)  # the cache lacks a package
    return environment
