"""The front doors: they validate, translate, and call the broker; they decide nothing else."""
