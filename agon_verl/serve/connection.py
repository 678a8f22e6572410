"""Connections that nobody can keep open for nothing: uvicorn's HTTP/1.1 protocol with limits of time, size and number.

uvicorn waits without end for the rest of a request, and for a client to read its answer. Here every connection is
looked at once a second, and closed if it has been in one of these states for too long:

- receiving: no request yet, or a part of one (headers or body);
- unread: an answer that waits in this process for its client to read. While a stream has less than `MAX_UNREAD` bytes
  waiting, generation goes on and its slot is free for others at the end, whether the client reads or not.

A connection carries one request at a time: a client that sends another before its answer is complete is disconnected.
Between two requests uvicorn's `timeout_keep_alive` applies. The parser is httptools, not h11: a body in chunks of one
byte costs h11, and with it all other clients, a hundred times more.
"""

import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from agon_verl.serve.protocol import ApiError

RECEIVING, UNREAD = "receiving", "unread"
SECONDS = {RECEIVING: 40.0, UNREAD: 60.0}
MAX_UNREAD = 2**20  # bytes of an answer
MAX_HEADERS = 2**16  # bytes, with the path
REFUSED_SECONDS, MAX_REFUSED = 1.0, 64  # for a refused client to read why, and how many may at a time
_full = ApiError(503, "the server has too many open connections: try again later", code="too_many_connections")
_BODY = json.dumps(_full.body).encode()
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 30\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class LimitedConnection(HttpToolsProtocol):
    """`limit`: connections open at a time; one address may have half of them."""

    def __init__(self, *arguments: Any, limit: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limit, self._refused = limit, False
        self._requests, self._partial = 0, True  # the first is awaited from the beginning
        self._header_bytes: int | None = None  # of the current request, beyond the first packet
        self._state: tuple[str | None, int] = (None, 0)
        self._since = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=MAX_UNREAD)
        others = [other.client for other in self.connections if isinstance(other, LimitedConnection)]
        same = sum(1 for other in others if other and self.client and other[0] == self.client[0])
        if len(others) > self._limit or same > self._limit // 2:
            self._refused = True
            transport.write(FULL)
            # Closed before its request is read, a connection is reset, and the client does not see the answer.
            seconds = REFUSED_SECONDS if len(others) <= self._limit + MAX_REFUSED else 0
            self.loop.call_later(seconds, transport.close)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        requests = self._requests
        super().data_received(data)
        if self._header_bytes is not None and self._requests == requests:
            self._header_bytes += len(data)
        if (self._header_bytes or 0) > MAX_HEADERS:
            self.transport.abort()

    def on_message_begin(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # uvicorn would keep the next request, and not notice that the client of this one leaves.
            self.transport.abort()
            raise ValueError("a request before the answer to the last one")  # ends the parsing; uvicorn catches it
        self._requests, self._partial, self._header_bytes = self._requests + 1, True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._header_bytes = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._partial = False
        super().on_message_complete()

    def check(self, now: float) -> None:
        """Close the connection if it has been in its state for too long. To be called every second."""
        state = self._current(), self._requests  # every request has time of its own
        if state != self._state:
            self._state, self._since = state, now
        elif state[0] is not None and now - self._since > SECONDS[state[0]]:
            self.transport.abort()

    def _current(self) -> str | None:
        if self._partial:
            return RECEIVING
        closing, answered = self.transport.is_closing(), self.cycle.response_complete
        if answered and not closing and self.timeout_keep_alive_task is None:
            return RECEIVING  # blank lines before a request, which are no part of it
        if self.flow.write_paused or ((answered or closing) and self.transport.get_write_buffer_size()):
            return UNREAD
        return None
