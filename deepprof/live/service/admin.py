"""`Admin`: orders to the daemon."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import grpc

from deepprof.live.service.refusal import RefusedError
from deepprof.live.wire.declarations import encode
from deepprof.v1 import admin_pb2 as wire
from deepprof.v1 import admin_pb2_grpc

if TYPE_CHECKING:
    from deepprof.live.service.engine import Engine
    from deepprof.live.service.examiner import Examiner

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """Executes orders; see proto/deepprof/v1/admin.proto."""

    def __init__(self, engine: Engine, examiner: Examiner) -> None:
        self.engine, self.examiner = engine, examiner

    async def Drain(self, _: wire.DrainRequest, context: Context) -> wire.DrainResponse:  # noqa: N802
        """Take no more records, and save everything."""
        await self.check_ready(context)
        return wire.DrainResponse(records=await self.engine.drain())

    async def ForgetJob(self, request: wire.ForgetJobRequest, context: Context) -> wire.ForgetJobResponse:  # noqa: N802
        """Remove a job that sends nothing now."""
        await self.check_ready(context)
        try:
            gone = await self.engine.forget(request.job)
        except RefusedError as refusal:
            await context.abort(getattr(grpc.StatusCode, refusal.code), str(refusal))
        self.forget_rest(request.job)
        log.info("job-forgotten", extra={"job": request.job, "iterations": gone})
        return wire.ForgetJobResponse(iterations=gone)

    def forget_rest(self, job: str) -> None:
        """Forget the job's captures; where a full disk prevents that, they are removed later."""
        try:
            self.examiner.forget(job)
        except OSError as error:
            log.warning("captures-not-forgotten", extra={"job": job, "problem": str(error)[:200]})

    async def ListSenders(self, _: wire.ListSendersRequest, context: Context) -> wire.ListSendersResponse:  # noqa: N802
        """List the senders."""
        refused = defaultdict[str, dict[str, int]](dict)
        for (reason, sender), count in self.engine.refusals.counts().items():
            refused[sender][reason] = count
        known = {view.sender: view for view in self.engine.senders.look()}
        for name in refused.keys() - known.keys():
            known[name] = self.engine.senders.describe(name)
        senders = [encode(wire.Sender, known[name], refused=refused[name]) for name in sorted(known)]
        return wire.ListSendersResponse(senders=senders)

    async def check_ready(self, context: Context) -> None:
        """End the call of an order that the daemon cannot carry out yet, or any more."""
        if not self.engine.ready:
            text = "the daemon is starting, or stopping; try again in a minute"
            await context.abort(grpc.StatusCode.UNAVAILABLE, text)

    async def CaptureWindow(  # noqa: N802
        self, request: wire.CaptureWindowRequest, context: Context
    ) -> wire.CaptureWindowResponse:
        """Keep the latest raw records of a rank."""
        await self.check_ready(context)
        rank = self.engine.roster.find(request.job, request.rank)
        if rank is None:
            text = f"no rank {request.rank} of a job {request.job[:128]!r}"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
        try:
            capture = await self.examiner.capture(rank, "asked-for")
        except RefusedError as refusal:
            await context.abort(getattr(grpc.StatusCode, refusal.code), str(refusal))
        return wire.CaptureWindowResponse(capture=capture)
