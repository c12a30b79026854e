"""The error table is complete and unambiguous."""

import inspect

import pytest

from quorumlog import errors

# The gRPC statuses by name, as the gRPC specification lists them.
STATUSES = {
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
}


BASES = {
    errors.QuorumlogError,
    errors.RetriableError,
    errors.TransportError,
    errors.GroupError,
    errors.AdminError,
    errors.StorageError,
    errors.AuthorizationFailed,
}


def test_every_error_class_is_in_the_table() -> None:
    written = {
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, errors.QuorumlogError)
    }
    assert written - BASES == set(errors.ERRORS)


def test_bases_are_caught_and_not_raised() -> None:
    assert {base for base in BASES if "name" in vars(base)} == {errors.QuorumlogError}
    for error in errors.ERRORS:
        own = [base for base in error.__mro__[1:] if base in BASES]
        assert own[-1] is errors.QuorumlogError
        assert error.retriable == issubclass(error, errors.RetriableError), error
        assert len(set(own) - {errors.QuorumlogError, errors.RetriableError}) <= 1, error


def test_timed_out_is_a_python_timeout_error() -> None:
    with pytest.raises(TimeoutError, match="t-1: too late") as caught:
        raise errors.TimedOut("too late", topic="t", partition=1)
    assert isinstance(caught.value, errors.RetriableError)
    assert (caught.value.topic, caught.value.partition) == ("t", 1)
    assert caught.value.args == ("too late",)


def test_a_refused_connection_is_no_unknown_outcome() -> None:
    assert not issubclass(errors.ConnectionFailed, errors.OutcomeUnknown)
    assert not errors.ClientClosed.retriable


def test_names_are_unique() -> None:
    assert len(errors.ERROR_BY_NAME) == len(errors.ERRORS)


@pytest.mark.parametrize("error", errors.ERRORS, ids=lambda error: error.name)
def test_rows_are_in_range(error: type[errors.QuorumlogError]) -> None:
    assert -1 <= error.code <= 133, "Kafka's numbers end there"
    assert error.code != 0, "0 means no error"
    assert error.status in STATUSES
    assert error.name == error.name.upper()
    assert error.__doc__, "the docstring is the documentation of the error"


def test_text_names_the_topic_and_partition() -> None:
    error = errors.OffsetOutOfRange("offset 9 is above the end 3", topic="t", partition=2)
    assert str(error) == "t-2: offset 9 is above the end 3"
    assert str(errors.InvalidTopic("empty name")) == "empty name"
    assert str(errors.UnknownTopicOrPartition("no such topic", topic="t")) == "t: no such topic"
