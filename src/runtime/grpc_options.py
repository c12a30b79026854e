"""Options of gRPC servers and channels: connection limits and keepalive."""

from typing import Any, Final

STREAMS_MAX: Final = 1000  # concurrent streams per connection; more wait at the client
HANDSHAKE_MS: Final = 30_000  # of TLS and HTTP/2; then the connection is closed
METADATA_BYTES_MAX: Final = 40 << 10  # headers of a call: a JSON Web Token of 31 KiB, and others
PING_INTERVAL_MS_MIN: Final = 1_000  # the minimum interval between a client's pings
KEEPALIVE_MS: Final = 30_000  # a silent client is pinged after this time
KEEPALIVE_TIMEOUT_MS: Final = 30_000  # and disconnected without a response after this time
CALLER_KEEPALIVE_MS: Final = 10_000  # a silent server with pending calls is pinged after this time
CALLER_KEEPALIVE_TIMEOUT_MS: Final = 5_000  # and its connection is replaced after this time
CONNECT_MS: Final = 500  # of one connection attempt; the next starts at once or after a backoff
CONNECT_MS_MAX: Final = 2_000
"""The maximum of a connection attempt's timeout, which doubles per attempt without a response.

An attempt takes two round trips, and the peer may be far away. A longer timeout would detect a hung
server too late.
"""


def _options(message_size_max: int) -> list[tuple[str, Any]]:
    """Return the options of servers and channels."""
    return [
        ("grpc.max_receive_message_length", message_size_max),
        ("grpc.max_send_message_length", message_size_max),
        ("grpc.so_reuseport", 0),
        ("grpc.enable_retries", 0),  # retries are decided by callers, which know the outcome
        ("grpc.enable_http_proxy", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.use_local_subchannel_pool", 1),  # each channel has its own connection
    ]


def server_options(message_size_max: int) -> list[tuple[str, Any]]:
    """Return the options of a server: connection limits, and pings in both directions.

    By default a client that pings more often than every 5 minutes is disconnected, one that
    disappeared keeps its streams for 2 hours, and of the calls with headers above 8 KiB some are
    refused at random.
    """
    return [
        *_options(message_size_max),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        ("grpc.max_metadata_size", METADATA_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MS_MIN),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ]


def channel_options(
    message_size_max: int, keepalive_ms: int, connect_ms: int = CONNECT_MS
) -> list[tuple[str, Any]]:
    """Return the options of a channel: a silent connection is detected while calls wait on it.

    By default the kernel detects it after a quarter of an hour.
    """
    timeout_ms = min(keepalive_ms, CALLER_KEEPALIVE_TIMEOUT_MS)
    return [
        *_options(message_size_max),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", connect_ms),  # actually the timeout of one attempt
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", timeout_ms),
        ("grpc.http2.ping_timeout_ms", timeout_ms),  # of a probe, behind which pings wait
        ("grpc.http2.max_pings_without_data", 0),  # no limit
    ]


def longer_connect_ms(connect_ms: int) -> int:
    """Return the timeout of the connection attempt after one without a response."""
    return max(connect_ms, min(2 * connect_ms, CONNECT_MS_MAX))
