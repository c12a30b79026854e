"""What parts of docs/benchmarks.md have in common, `tables`. Its page is `benchmarks.page`."""
