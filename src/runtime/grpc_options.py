"""How gRPC's servers and channels are set: bounds of a connection, and who asks whom for a sign of
life."""

from typing import Any, Final

STREAMS_MAX: Final = 1000  # of one connection at once; a caller's further ones wait at the caller
PING_INTERVAL_MS_MIN: Final = 1_000  # a caller may ask as often as this whether we live
KEEPALIVE_MS: Final = 30_000  # a silent caller is asked after this time, and cut off ...
KEEPALIVE_TIMEOUT_MS: Final = 30_000  # ... when no answer comes for this long
CALLER_KEEPALIVE_MS: Final = 10_000  # a silent server that owes an answer is asked after this time
CALLER_KEEPALIVE_TIMEOUT_MS: Final = 5_000  # and its connection is made anew after so long
CONNECT_MS: Final = 500  # one attempt to connect; the next begins at once or after a back-off
CONNECT_MS_MAX: Final = 2_000
"""An attempt takes two round trips. Whoever does not answer in time may be far away: each attempt
may take twice as long as the one before, up to this, behind which what hangs is found too late."""


def _options(message_size_max: int) -> list[tuple[str, Any]]:
    """Return what servers and channels share."""
    return [
        ("grpc.max_receive_message_length", message_size_max),
        ("grpc.max_send_message_length", message_size_max),
        ("grpc.so_reuseport", 0),
        ("grpc.enable_retries", 0),  # repeating is decided above, by those who know the outcome
        ("grpc.enable_http_proxy", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.use_local_subchannel_pool", 1),  # a channel is a connection of its own
    ]


def server_options(message_size_max: int) -> list[tuple[str, Any]]:
    """Return what a server adds: bounds of a connection, and pings both ways.

    By default a caller who pings more often than every 5 minutes is cut off, and one that vanished
    without a word keeps its streams for 2 hours.
    """
    return [
        *_options(message_size_max),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MS_MIN),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ]


def channel_options(
    message_size_max: int, keepalive_ms: int, connect_ms: int = CONNECT_MS
) -> list[tuple[str, Any]]:
    """Return what channels add: a connection that fell silent is found while calls wait on it.

    By default it is the kernel that gives such a one up, after a quarter of an hour.
    """
    timeout_ms = min(keepalive_ms, CALLER_KEEPALIVE_TIMEOUT_MS)
    return [
        *_options(message_size_max),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", connect_ms),  # in truth the time one attempt may take
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", timeout_ms),
        ("grpc.http2.ping_timeout_ms", timeout_ms),  # of a probe, behind which pings wait
        ("grpc.http2.max_pings_without_data", 0),  # any number
    ]


def longer_connect_ms(connect_ms: int) -> int:
    """Return what an attempt to connect may take behind one that got no answer."""
    return max(connect_ms, min(2 * connect_ms, CONNECT_MS_MAX))
