"""Telling "it was done before" from a refusal, for changes that are repeated when an answer is
lost."""

from collections.abc import Callable

from ...errors import UnknownTopicId, UnknownTopicOrPartition
from ..retry import is_retriable


class Attempts:
    """Decides what is repeated in one call, and remembers whether an attempt may have been carried
    out.

    `refusals` are retriable errors after which certainly nothing was changed.
    """

    def __init__(
        self,
        *,
        refusals: tuple[type[BaseException], ...] = (),
        is_worth_repeating: Callable[[BaseException], bool] = is_retriable,
    ) -> None:
        self.is_outcome_unknown = False
        self._refusals = refusals
        self._is_worth_repeating = is_worth_repeating

    def retry_on(self, error: BaseException) -> bool:
        """Whether to ask again after this error."""
        again = self._is_worth_repeating(error)
        if again and not isinstance(error, self._refusals):
            self.is_outcome_unknown = True
        return again


def is_worth_repeating(error: BaseException) -> bool:
    """A topic that the controller does not know will not appear by asking again."""
    return is_retriable(error) and not is_absent(error)


def is_absent(error: BaseException) -> bool:
    """Whether there is no such topic."""
    return isinstance(error, UnknownTopicOrPartition | UnknownTopicId)
