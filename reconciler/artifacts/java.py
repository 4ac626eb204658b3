"""The Java that runs the downloaded jars."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from reconciler.core.errors import ConfigError

MINIMUM_JAVA = 17


def java_executable() -> Path:
    """A Java of at least ``MINIMUM_JAVA``: that of JAVA_HOME, else the first on the PATH. Raises ConfigError."""
    home = os.environ.get("JAVA_HOME")
    places = [os.path.join(home, "bin", "java")] if home else []
    places += [found] if (found := shutil.which("java")) else []
    versions = {place: version for place in places if (version := _version_of(place))}
    for place, version in versions.items():
        if version >= MINIMUM_JAVA:
            return Path(place)
    found_here = "; ".join(f"{place} is Java {version}" for place, version in versions.items())
    raise ConfigError(
        f"Java {MINIMUM_JAVA} or newer is needed, and {found_here or 'there is none here'}.",
        hint=f"Install one (Debian and Ubuntu: openjdk-{MINIMUM_JAVA}-jre-headless, Fedora: "
        f"java-{MINIMUM_JAVA}-openjdk-headless, macOS: openjdk@{MINIMUM_JAVA}) and put it on the PATH, or set "
        "JAVA_HOME.",
    )


@lru_cache(maxsize=8)
def _version_of(executable: str) -> int | None:
    """The feature release, 8 for "1.8"; None if it does not run as Java. Asked once: a lab starts dozens of JVMs."""
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, errors="replace", timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def java_home(java: Path) -> dict[str, str]:
    """The environment that makes Maven and Spark use this Java; empty for a version manager's shim."""
    real = java.resolve()
    return {"JAVA_HOME": str(real.parent.parent)} if real.parent.name == "bin" else {}
