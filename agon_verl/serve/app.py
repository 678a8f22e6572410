"""The endpoints, as a Starlette application over one engine.

Whatever a request does runs in a task of its own beside one that waits for the client to leave: the first to end ends
the other. A cancelled task takes its request out of vLLM, in either stage and in the line before.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agon_verl.inference.cascade import Solved
from agon_verl.inference.players import InferenceError, read_mode
from agon_verl.inference.vllm_engine import Engine
from agon_verl.serve.protocol import ApiError, Ask, read_ask
from agon_verl.serve.reading import Reading
from agon_verl.serve.replies import DONE, STILL_HERE, Reply, draft_of, event, gather, usage_of
from agon_verl.serve.service import Line, opening, play

MAX_BODY = 8 * 2**20  # bytes
KEEP_ALIVE = 10.0  # seconds between comments in a stream
STALLED = 60.0  # seconds after which a client that reads nothing is gone
STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
STREAM.append((b"x-accel-buffering", b"no"))  # a proxy must not wait for the end

log = logging.getLogger("agon_verl.serve")


class Service:
    """What the endpoints share. `models`: modes by name, the default first; `keys`: none, and anybody may ask."""

    def __init__(self, engine: Engine, models: Mapping[str, str], line: Line, keys: Collection[str] = ()) -> None:
        self.engine, self.models, self.line = engine, models, line
        self.keys = [key.encode() for key in keys]
        self.started = int(time.time())
        self.draining = self.cutting = False
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def status(self) -> str:
        return "dead" if not self.engine.alive else "draining" if self.draining else "ok"

    @property
    def closed(self) -> ApiError | None:
        """Why nothing can be asked now."""
        if self.status == "dead":
            return ApiError(503, "vLLM's engine has died: the server must be started again", code="engine_dead")
        if self.status == "draining":
            return ApiError(503, "the server is shutting down", code="shutting_down", retry_after=30)
        return None

    def check_key(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        found = [hmac.compare_digest(key, given.strip().encode()) for key in self.keys]
        if self.keys and not (scheme.lower() == "bearer" and any(found)):
            told = "the API key is missing or wrong: send it as Authorization: Bearer <key>"
            raise ApiError(401, told, code="invalid_api_key")

    async def health(self, _: Request) -> Response:
        line, status = self.line, self.status
        told = {"status": status, "running": line.running, "waiting": line.waiting, "in_vllm": self.engine.unfinished}
        return JSONResponse(told, 200 if status == "ok" else 503)

    async def list_models(self, request: Request) -> Response:
        self.check_key(request)
        about = {"object": "model", "created": self.started, "owned_by": "agon-verl"}
        return JSONResponse({"object": "list", "data": [{"id": name, **about} for name in self.models]})

    async def chat(self, request: Request) -> "_Answer":
        self.check_key(request)
        if closed := self.closed:
            raise closed
        ask = read_ask(await _body(request))
        name = next(iter(self.models)) if ask.model is None else ask.model
        if name not in self.models:
            known = ", ".join(self.models)
            raise ApiError(404, f"there is no model {name!r} here: use one of {known}", "model", "model_not_found")
        return _Answer(self, ask, name)

    async def drain(self, limit: float, hurry: Callable[[], bool]) -> None:
        """Let what was accepted end, and cut what has not after `limit` seconds, or when there is a hurry."""
        self.draining = True
        end = time.monotonic() + limit
        while self.tasks and time.monotonic() < end and not hurry():
            await asyncio.sleep(0.05)
        self.cutting = True
        for task in self.tasks:
            task.cancel()


class _Answer:
    """Plays while it is sent: an ASGI application for one request."""

    def __init__(self, service: Service, ask: Ask, name: str) -> None:
        self._service, self._ask, self._name, self._mode = service, ask, name, service.models[name]
        self._reply, self._streaming = Reply(name), False
        self._outcome = "left by its client"
        self._task: asyncio.Task[None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, tasks, failed = time.monotonic(), self._service.tasks, None
        with self._service.line.place():
            work = self._task = asyncio.ensure_future(self._work(scope, receive, send))
            gone = asyncio.ensure_future(_left(receive))
            tasks.add(work)
            try:
                await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
                failed = self._failure(work)
            finally:
                tasks.discard(work)
                for task in (work, gone):
                    task.cancel()
                await asyncio.gather(work, gone, return_exceptions=True)
                told = f"{failed.status}, {failed}" if failed else self._outcome
                log.info("%s: %s, %.2f s", self._name, told, time.monotonic() - start)
        if failed is not None and not self._streaming:
            raise failed
        if failed is not None:
            await _say(send, event(failed.body), more=False)

    def _failure(self, work: asyncio.Task[None]) -> ApiError | None:
        """What went wrong that a client can be told; what nobody foresaw is raised, for the log."""
        if not work.done() or (work.cancelled() and not self._service.cutting):
            return None
        error = None if work.cancelled() else work.exception()
        if work.cancelled() or isinstance(error, InferenceError):
            return self._service.closed or ApiError(500, str(error))
        if error is not None and not isinstance(error, ApiError):
            raise error
        return error

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, ask = self._service, self._ask
        engine = service.engine
        sampling = ask.sampling(engine.players.sampling)
        opened = await asyncio.to_thread(opening, engine, ask.messages, self._mode)
        reading = Reading(engine.players.tags, opened, ask.stop)
        pulse = None
        if ask.stream:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM})
            self._streaming = True
            await _say(send, self._reply.chunk({"role": "assistant", "content": ""}))
            pulse = asyncio.ensure_future(_pulse(send, self._task))
        parts: list[Any] = []
        try:
            async with service.line.turn(), aclosing(play(engine, ask, self._mode, sampling, reading)) as said:
                async for piece in said:
                    if isinstance(piece, Solved):
                        solved = piece
                    elif ask.stream:
                        await _say(send, self._reply.chunk(dict([piece])))
                    else:
                        parts.append(piece)
        finally:
            if pulse is not None:
                pulse.cancel()
        finish = "stop" if reading.stopped else solved.final.finish
        usage, more = usage_of(solved), {}
        if ask.agon.draft:
            more = draft_of(solved, read_mode(self._mode, engine.players.names)[0], engine.players.tags)
        self._outcome = f"{usage['prompt_tokens']} tokens read, {usage['completion_tokens']} written, {finish}"
        if not ask.stream:
            await JSONResponse(self._reply.whole(gather(parts), finish, usage, more))(scope, receive, send)
            return
        await _say(send, self._reply.chunk({}, finish, more))
        if ask.stream_options.include_usage:
            await _say(send, self._reply.usage_chunk(usage))
        await _say(send, DONE, more=False)


async def _say(send: Send, text: str, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": more})


async def _pulse(send: Send, work: asyncio.Task[None]) -> None:
    """So that nothing on the way takes a long draft for a dead connection, and no client holds a turn unread."""
    while True:
        await asyncio.sleep(KEEP_ALIVE)
        try:
            await asyncio.wait_for(_say(send, STILL_HERE), STALLED)
        except asyncio.TimeoutError:
            work.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                raise ApiError(413, f"the body has more than {MAX_BODY} bytes")
    except ClientDisconnect:
        raise ApiError(400, "the client left before it had asked") from None
    return body


def _told(_: Request, error: Exception) -> Response:
    if isinstance(error, ApiError):
        headers = {"retry-after": str(error.retry_after)} if error.retry_after else None
        return JSONResponse(error.body, error.status, headers)
    if isinstance(error, HTTPException):
        return JSONResponse(ApiError(error.status_code, error.detail).body, error.status_code, error.headers)
    return JSONResponse(ApiError(500, "the server failed: its log says how").body, 500)


def make_app(service: Service) -> Starlette:
    routes = [
        Route("/v1/chat/completions", service.chat, methods=["POST"]),
        Route("/v1/models", service.list_models, methods=["GET"]),
        Route("/health", service.health, methods=["GET"]),
    ]
    return Starlette(routes=routes, exception_handlers={kind: _told for kind in (ApiError, HTTPException, Exception)})
