"""The options of the gRPC server: sizes, connections and their age."""

from __future__ import annotations

import resource

from deepprof.live.service.config.default_paths import listen_addresses
from deepprof.live.service.config.sections import Config

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000  # gRPC counts milliseconds
METADATA_NBYTES = 16 << 10
RESERVED_FILES = 256  # for journal, history, examinations, scrapes
PORTS = 2  # that one HOST:PORT can mean: `localhost` names 127.0.0.1 and ::1
IDENTITY_ONLY = 1  # a bit per compression algorithm; the first bit means no compression


def server_options(config: Config) -> list[tuple[str, int]]:
    """Return the options for `grpc.aio.server`."""
    return [
        # Otherwise a second daemon silently shares the port, and each gets some of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", config.limits.message_nbytes),
        # A message of zeros unpacks to a thousand times its size; older versions of gRPC unpack it before they check.
        ("grpc.compression_enabled_algorithms_bitset", IDENTITY_ONLY),
        # Windows that grow with the sender's speed hold tens of megabytes that no call has asked for yet; with them
        # off, and a window as wide as the message that is waited for, records came in no slower.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_metadata_size", METADATA_NBYTES),
        ("grpc.absolute_max_metadata_size", METADATA_NBYTES),
        ("grpc.max_concurrent_streams", config.limits.streams),
        ("grpc.max_allowed_incoming_connections", most_connections(config)),
        ("grpc.server_handshake_timeout_ms", 10 * SECOND),
        # Peers that vanished without closing the connection are noticed within 80 seconds.
        ("grpc.keepalive_time_ms", MINUTE),
        ("grpc.keepalive_timeout_ms", 20 * SECOND),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10 * SECOND),
        # After a day a client must connect again, with a certificate and a token that are still valid.
        ("grpc.max_connection_age_ms", 24 * HOUR),
        ("grpc.max_connection_age_grace_ms", 10 * MINUTE),
        ("grpc.max_connection_idle_ms", HOUR),
    ]


def most_connections(config: Config) -> int:
    """Return how many connections an address accepts: as configured, or fewer where there are not enough files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return config.listen.connections
    ports = sum(1 if address.is_unix else PORTS for address in listen_addresses(config))
    return max(1, min(config.listen.connections, (files - RESERVED_FILES) // ports))
