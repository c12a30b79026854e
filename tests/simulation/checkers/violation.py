"""What a broken invariant says."""


class Violation(AssertionError):
    """An invariant does not hold; `invariant` is its class's name."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
