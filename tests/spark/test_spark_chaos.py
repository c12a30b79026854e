"""A pipeline through Spark is exactly once while brokers, executors and drivers are killed."""

from pathlib import Path

import pytest

from .spark_chaos import KINDS, run_spark_chaos


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_pipeline_is_exact_through_kills_of_each_kind(tmp_path: Path) -> None:
    report = run_spark_chaos(tmp_path, kills=3, seed=1, rows=60_000)
    assert set(report["kills"]) == set(KINDS), report
