"""The section of the page about starts."""

from collections.abc import Iterator

from benchmarks.pages.tables import Result, head, line


def startup(result: Result) -> Iterator[str]:
    """Yield the seconds to the ready line, and memory."""
    yield f"{result['machine']}, Python {result['python']}."
    yield ""
    yield from head("what", "median")
    yield line("from the command to the ready line", f"{result['ready_s_median']:.2f} s")
    if seconds := result.get("secure_ready_s_median"):
        yield line("the same with `--secure`", f"{seconds:.2f} s")
    yield line("a bare Python that imports grpc", f"{result['import_grpc_s_median']:.2f} s")
    for what, key in (("quorumlog --help", "help"), ("import quorumlog", "import")):
        if spent := result.get(f"{key}_cpu_s_median"):
            yield line(f"processor time of `{what}`", f"{spent:.3f} s")
    yield line("memory when idle", f"{result['idle_mb_max']:.0f} MB")
    for what, key in (
        (
            "a test's broker, to the first record acknowledged to librdkafka",
            "first_record",
        ),
        ("a run of pytest with one such test, start to end", "pytest"),
        ("a test's cluster of three nodes, until it serves", "cluster"),
    ):
        if seconds := result.get(f"{key}_s_median"):
            yield line(what, f"{seconds:.2f} s")
