"""Common parts of docs/benchmarks.md, in `tables`. `benchmarks.page` writes the page."""
