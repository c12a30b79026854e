"""The Spark examples: their results equal the original file's, and a second run continues."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("spark_delays", "spark_features", "spark_upserts")


def load(name: str) -> Any:
    """Return an example as a module that workers cannot import: they cannot import `__main__`
    either."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMES if name != "spark_delays"])
def test_example_equals_an_independent_computation(
    spark: "SparkSession", broker: Any, tmp_path: Path, name: str
) -> None:
    assert load(name).run(spark, broker.address, tmp_path, months=1)


@pytest.mark.long
def test_second_run_adds_only_new_records(
    spark: "SparkSession", own_broker: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    delays = load("spark_delays")
    for months, flights, added in ((1, "27,004", "27,004"), (2, "51,955", "24,951")):
        assert delays.run(spark, own_broker.address, tmp_path, months=months)
        printed = capsys.readouterr().out
        assert f"flights: {flights} of {months} months, 1 of them new\n" in printed
        assert f"over {added} new flights\n" in printed
    with pytest.raises(SystemExit, match="hourly-delays has results of an earlier run"):
        delays.run(spark, own_broker.address, tmp_path / "new", months=2)


@pytest.mark.parametrize("name", NAMES)
def test_help_names_the_options(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--help"]
    printed = subprocess.check_output(command, text=True)
    assert all(option in printed for option in ("--bootstrap", "--months", "--folder"))
