"""The page of benchmarks is generated from results and keeps those of other machines."""

from benchmarks.page import CHART, PAGE, page
from benchmarks.pages.kafka_chart import chart


def test_benchmark_that_did_not_run_keeps_its_section() -> None:
    empty = page({})
    text = "## Record codec\n\nAbout it.\n\nIts rows, measured elsewhere.\n\n"
    before, rest = empty.split("## Record codec\n")
    after = rest[rest.index("## ") :]
    made = page({}, before + text + after)
    assert made == before + text + after
    assert page({}, made) == made


def test_result_replaces_the_earlier_one_on_the_page() -> None:
    text = page({}).replace("*Not measured here yet: `python benchmarks/append.py`", "*Old:")
    assert "*Old:" in text
    made = page(
        {"append": {"cores": 2, "machine": "a processor", "python": "3.11.7", "rows": {}}}, text
    )
    assert "*Old:" not in made
    assert "2 cores of a processor, Python 3.11.7." in made
    assert made.count("Not measured here yet") == text.count("Not measured here yet")


def test_the_summary_is_kept() -> None:
    before, rest = page({}).split("## Python clients\n")
    edited = f"{before}## Summary\n\nBy hand.\n\n## Python clients\n{rest}"
    assert page({}, edited) == edited


def test_the_chart_has_the_ratios_of_the_page() -> None:
    assert chart(PAGE.read_text()) == CHART.read_text()
