"""The vendored script is the pinned one."""

import hashlib
from importlib.resources import files


def test_htmx_is_the_pinned_file() -> None:
    static = files("quorumlog.console").joinpath("static")
    digest = hashlib.sha256(static.joinpath("htmx.min.js").read_bytes()).hexdigest()
    assert f"sha256 {digest}" in static.joinpath("htmx.version").read_text(encoding="utf-8")
