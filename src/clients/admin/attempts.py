"""Retries of changes: a refusal after an attempt of unknown outcome may mean that it succeeded."""

from collections.abc import Callable

from ...errors import UnknownTopicId, UnknownTopicOrPartition
from ..retry import is_retriable


class Attempts:
    """The attempts of one call; records whether one of them may have been executed.

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
        """Return True if the call is to be retried after this error."""
        again = self._is_worth_repeating(error)
        if again and not isinstance(error, self._refusals):
            self.is_outcome_unknown = True
        return again


def is_worth_repeating(error: BaseException) -> bool:
    """Return True if a retry may succeed; a topic that the controller does not have stays
    absent."""
    return is_retriable(error) and not is_absent(error)


def is_absent(error: BaseException) -> bool:
    """Return True if the error says that the topic does not exist."""
    return isinstance(error, UnknownTopicOrPartition | UnknownTopicId)
