"""The access check before every call: nothing of a request is read before the caller is known to be allowed."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
from grpc import aio

from deepprof.live.service.access.caller import CALLER
from deepprof.live.service.access.guard import AccessGuard, AccessRefusal
from deepprof.live.service.refusal import Refusals

log = logging.getLogger(__name__)

Context = Any  # grpc.aio's ServicerContext is generic in types that are unknown here
Behaviour = Callable[..., Any]

# A service that is not listed is unimplemented for clients.
SCOPES: dict[str, str | None] = {
    "deepprof.v1.Ingest": "ingest",
    "deepprof.v1.Query": "read",
    "deepprof.v1.Admin": "admin",
    "grpc.reflection.v1alpha.ServerReflection": "read",
    "grpc.health.v1.Health": None,
}


def make_interceptors(guard: AccessGuard, refusals: Refusals) -> list[aio.ServerInterceptor]:
    """Return the interceptors for `grpc.aio.server`; refused calls are counted in `refusals`."""
    return [AccessInterceptor(guard, refusals)]


class AccessInterceptor(aio.ServerInterceptor):
    """Admits callers that have the scope that a method's service needs."""

    def __init__(self, guard: AccessGuard, refusals: Refusals) -> None:
        self.guard, self.refusals = guard, refusals

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the method's handler with the check before it; None (unimplemented) for methods not listed."""
        service = details.method.removeprefix("/").rpartition("/")[0]
        handler = await continuation(details)
        if handler is None or service not in SCOPES:
            return None
        scope = SCOPES[service]
        return handler if scope is None else _guarded(handler, self.checker(scope, details.method))

    def checker(self, scope: str, method: str) -> Callable[[Context], Awaitable[None]]:
        """Return the check that ends a call of `method` without `scope`."""

        async def check(context: Context) -> None:
            answer = self.guard.decide(
                scope, context.invocation_metadata() or (), context.peer(), context.auth_context()
            )
            if isinstance(answer, AccessRefusal):
                await self.refuse(answer, method, context)
            else:
                CALLER.set(answer.name)

        return check

    async def refuse(self, refusal: AccessRefusal, method: str, context: Context) -> None:
        """End a refused call, count it and log it."""
        extra = {"peer": context.peer(), "token": refusal.name, "method": method, "problem": refusal.problem}
        log.warning("call-refused", extra=extra)
        code = grpc.StatusCode.PERMISSION_DENIED if refusal.name else grpc.StatusCode.UNAUTHENTICATED
        self.refusals.note(code.name.lower().replace("_", "-"), refusal.name)
        await context.abort(code, refusal.problem)


def _guarded(handler: Any, check: Callable[[Context], Awaitable[None]]) -> Any:
    """Return `handler` with `check` before it, as a handler that takes a stream of requests.

    For the client a single request is the same as a stream of one, but gRPC would read it, whole, before our code runs.
    """
    behaviour, many = _find_behaviour(handler)
    make = grpc.stream_stream_rpc_method_handler if handler.response_streaming else grpc.stream_unary_rpc_method_handler
    wrap = _wrap_many if many else _wrap_one
    one = not handler.request_streaming
    return make(wrap(behaviour, check, one), handler.request_deserializer, handler.response_serializer)


def _find_behaviour(handler: Any) -> tuple[Behaviour, bool]:
    kinds = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
    behaviour = next(kind for kind in kinds if kind is not None)
    return behaviour, inspect.isasyncgenfunction(behaviour)


def _wrap_one(behaviour: Behaviour, check: Callable[[Context], Awaitable[None]], one: bool) -> Behaviour:
    """Return a coroutine function that checks before `behaviour`."""

    async def run(requests: AsyncIterator[Any], context: Context) -> Any:
        await check(context)
        return await behaviour(await take(requests, context) if one else requests, context)

    return run


def _wrap_many(behaviour: Behaviour, check: Callable[[Context], Awaitable[None]], one: bool) -> Behaviour:
    """Return an asynchronous generator function that checks before `behaviour`."""

    async def run(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        await check(context)
        async with aclosing(behaviour(await take(requests, context) if one else requests, context)) as responses:
            async for response in responses:
                yield response

    return run


async def take(requests: AsyncIterator[Any], context: Context) -> Any:
    """Return the only request of a call; a call without one is ended here."""
    async for request in requests:
        return request
    return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call holds no request")
