"""What a running daemon offers to tools that know nothing of it: health, and the description of its services."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.deepprof.live.service.daemons import DEADLINE_S, running

OURS = {"deepprof.v1.Ingest", "deepprof.v1.Query", "deepprof.v1.Admin"}


def test_every_service_is_described_and_healthy() -> None:
    with running() as daemon, grpc.insecure_channel(daemon.address) as channel:
        described = set(ProtoReflectionDescriptorDatabase(channel).get_services())
        assert described >= OURS
        check = health_pb2_grpc.HealthStub(channel).Check
        for service in ("", *OURS):
            answer = check(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE_S)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING, service
