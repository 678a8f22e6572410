"""The endpoints, as a Starlette application over one engine.

Each request runs in a task of its own, beside one that waits for the client to leave: whichever ends first ends the
other. A cancelled task takes its request out of the queue or out of vLLM, in either stage.

Reading a request costs time and memory before anything is generated: the key, the place in the queue and the declared
length are checked before the body is read, the body has a limit of size and of time, and few requests at a time are
parsed and tokenized, beside the event loop.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from reprlib import repr as short

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agon_verl.inference.players import InferenceError, read_mode
from agon_verl.inference.vllm_engine import Engine
from agon_verl.serve.protocol import ApiError, ChatRequest, parse_request
from agon_verl.serve.replies import DONE, STILL_HERE, Reply, draft_fields, event, join_parts, usage_of
from agon_verl.serve.request import RequestQueue, check_prompt, max_body, play
from agon_verl.serve.splitter import Part, StreamSplitter

BODY_SECONDS = 30.0  # for a body to arrive
READERS = 2  # threads that parse and tokenize requests
KEEP_ALIVE = 10.0  # seconds between comments in a stream
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy must not wait for the end
]

log = logging.getLogger("agon_verl.serve")


class Service:
    """What the endpoints share. `models`: modes by name, the default first. Without `keys` no client needs one."""

    def __init__(
        self, engine: Engine, models: Mapping[str, str], queue: RequestQueue, keys: Collection[str] = ()
    ) -> None:
        self.engine, self.models, self.queue = engine, models, queue
        self.keys = [key.encode() for key in keys]
        self.started = int(time.time())
        self.draining = self.cutting = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.max_body = max_body(engine.players.max_prompt)
        self.readers = ThreadPoolExecutor(READERS, "reader")

    @property
    def status(self) -> str:
        return "dead" if not self.engine.alive else "draining" if self.draining else "ok"

    @property
    def unavailable(self) -> ApiError | None:
        """The error for every request, if the server cannot answer any."""
        if self.status == "dead":
            return ApiError(503, "the vLLM engine has died: restart the server", code="engine_dead")
        if self.status == "draining":
            return ApiError(503, "the server is shutting down", code="shutting_down", retry_after=30)
        return None

    def has_key(self, request: Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        matches = [hmac.compare_digest(key, token.strip().encode()) for key in self.keys]
        return not self.keys or (scheme.lower() == "bearer" and any(matches))

    def check_key(self, request: Request) -> None:
        if not self.has_key(request):
            message = "the API key is missing or wrong: send it as Authorization: Bearer <key>"
            raise ApiError(401, message, code="invalid_api_key")
        if not self.keys and "origin" in request.headers:
            # Any page that the user of this machine visits can send requests to 127.0.0.1.
            raise ApiError(403, "a server without an API key answers no web page: start it with a key", code="origin")

    async def health(self, request: Request) -> Response:
        counts = {"running": self.queue.running, "waiting": self.queue.waiting, "in_vllm": self.engine.unfinished}
        shown = counts if self.has_key(request) else {}
        return JSONResponse({"status": self.status, **shown}, 200 if self.status == "ok" else 503)

    async def list_models(self, request: Request) -> Response:
        self.check_key(request)
        common = {"object": "model", "created": self.started, "owned_by": "agon-verl"}
        return JSONResponse({"object": "list", "data": [{"id": name, **common} for name in self.models]})

    async def chat(self, request: Request) -> "_Answer":
        self.check_key(request)
        if error := self.unavailable:
            raise error
        if request.headers.get("content-encoding", "identity") != "identity":
            raise ApiError(415, "a compressed body is not supported: send it without Content-Encoding")
        if int(request.headers.get("content-length", 0)) > self.max_body:
            raise _too_long(self.max_body)
        return _Answer(self)

    async def read_request(self, request: Request) -> tuple[ChatRequest, str]:
        """The request, and the name of its model."""
        body = await _body(request, self.max_body)
        chat = await asyncio.get_running_loop().run_in_executor(self.readers, parse_request, body)
        if error := self.unavailable:  # since the headers came
            raise error
        name = next(iter(self.models)) if chat.model is None else chat.model
        if name not in self.models:
            message = f"model {short(name)} does not exist: use one of {', '.join(self.models)}"
            raise ApiError(404, message, "model", "model_not_found")
        return chat, name

    async def drain(self, limit: float, hurry: Callable[[], bool]) -> None:
        """Wait for the accepted requests; cancel those left after `limit` seconds, or as soon as `hurry` is true."""
        self.draining = True
        end = time.monotonic() + limit
        while self.tasks and time.monotonic() < end and not hurry():
            await asyncio.sleep(0.05)
        self.cutting = True
        for task in self.tasks:
            task.cancel()


class _Answer:
    """An ASGI application for one request, which generates while it sends."""

    def __init__(self, service: Service) -> None:
        self._service, self._streaming = service, False
        self._outcome = "client disconnected"
        self._chat: ChatRequest
        self._name: str
        self._task: asyncio.Task[None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, tasks, error = time.monotonic(), self._service.tasks, None
        with self._service.queue.accept():
            self._chat, self._name = await self._service.read_request(Request(scope, receive))
            work = self._task = asyncio.ensure_future(self._work(scope, receive, send))
            gone = asyncio.ensure_future(_disconnected(receive))
            tasks.add(work)
            try:
                await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
                error = self._error(work)
            finally:
                tasks.discard(work)
                for task in (work, gone):
                    task.cancel()
                await asyncio.gather(work, gone, return_exceptions=True)
                outcome = f"{error.status}, {error}" if error else self._outcome
                log.info("%s: %s, %.2f s", self._name, outcome, time.monotonic() - start)
        if error is not None and not self._streaming:
            raise error
        if error is not None:
            await _send_text(send, event(error.body), more=False)

    def _error(self, work: asyncio.Task[None]) -> ApiError | None:
        """The error to send to the client. An unexpected one is raised, and so reaches the log."""
        if not work.done() or (work.cancelled() and not self._service.cutting):
            return None
        error = None if work.cancelled() else work.exception()
        if work.cancelled() or isinstance(error, InferenceError):
            return self._service.unavailable or ApiError(500, str(error))
        if error is not None and not isinstance(error, ApiError):
            raise error
        return error

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        engine, queue, chat = self._service.engine, self._service.queue, self._chat
        mode, reply = self._service.models[self._name], Reply(self._name)
        sampling = chat.sampling(engine.players.sampling)
        loop, readers = asyncio.get_running_loop(), self._service.readers
        messages, opened = await loop.run_in_executor(readers, check_prompt, engine, chat.messages, mode)
        splitter = StreamSplitter(engine.players.tags, opened, chat.stop)
        keep_alive = None
        if chat.stream:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            self._streaming = True
            await _send_text(send, reply.chunk({"role": "assistant", "content": ""}))
            keep_alive = asyncio.ensure_future(_keep_alive(send))
        parts: list[tuple[Part, str]] = []

        async def emit(pieces: list[tuple[Part, str]]) -> None:
            parts.extend(pieces)
            for part, text in pieces if chat.stream else ():
                await _send_text(send, reply.chunk({part: text}))

        try:
            async with queue.slot():
                solved = await play(engine, messages, mode, sampling, splitter, emit)
        finally:
            if keep_alive is not None:
                keep_alive.cancel()
        finish = "stop" if splitter.stopped else solved.final.finish
        usage, extra = usage_of(solved), {}
        if chat.agon.draft:
            extra = draft_fields(solved, read_mode(mode, engine.players.names)[0], engine.players.tags)
        self._outcome = f"{usage['prompt_tokens']} prompt tokens, {usage['completion_tokens']} generated, {finish}"
        if not chat.stream:
            await JSONResponse(reply.complete(join_parts(parts), finish, usage, extra))(scope, receive, send)
            return
        await _send_text(send, reply.chunk({}, finish, extra))
        if chat.stream_options.include_usage:
            await _send_text(send, reply.usage_chunk(usage))
        await _send_text(send, DONE, more=False)


async def _send_text(send: Send, text: str, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": more})


async def _keep_alive(send: Send) -> None:
    """Comments, so that no proxy closes the connection during a long draft."""
    while True:
        await asyncio.sleep(KEEP_ALIVE)
        await _send_text(send, STILL_HERE)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request, limit: int) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise _too_long(limit)
    except TimeoutError:
        raise ApiError(408, f"the body was not complete after {BODY_SECONDS:g} seconds: send it faster") from None
    except ClientDisconnect:
        raise ApiError(400, "the client disconnected before the request was complete") from None
    return bytes(body)


def _too_long(limit: int) -> ApiError:
    return ApiError(413, f"the body has more than {limit} bytes")


def _error_response(_: Request, error: Exception) -> Response:
    if isinstance(error, ApiError):
        headers = {"retry-after": str(error.retry_after)} if error.retry_after else None
        return JSONResponse(error.body, error.status, headers)
    if isinstance(error, HTTPException):
        return JSONResponse(ApiError(error.status_code, error.detail).body, error.status_code, error.headers)
    return JSONResponse(ApiError(500, "internal error: see the server's log").body, 500)


def make_app(service: Service) -> Starlette:
    routes = [
        Route("/v1/chat/completions", service.chat, methods=["POST"]),
        Route("/v1/models", service.list_models, methods=["GET"]),
        Route("/health", service.health, methods=["GET"]),
    ]
    handlers = {kind: _error_response for kind in (ApiError, HTTPException, Exception)}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False  # to an address that the client's Host header names
    return app
