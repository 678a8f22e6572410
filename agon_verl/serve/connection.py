"""Connections that nobody can keep open for nothing: uvicorn's HTTP/1.1 protocol with limits of time, size and number.

uvicorn waits without end for the rest of a request, and for a client to read its answer. Here every connection is
looked at once a second, and closed if it has been in one of these states for too long:

- receiving: no request yet, or a part of one (headers or body);
- unread: an answer that waits in this process for its client to read. While a stream has less than `MAX_UNREAD` bytes
  waiting, generation goes on and its slot is free for others at the end, whether the client reads or not.

Between two requests uvicorn's `timeout_keep_alive` applies. h11, not httptools, because it limits the headers' size.
"""

import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from agon_verl.serve.protocol import ApiError

RECEIVING, UNREAD = "receiving", "unread"
SECONDS = {RECEIVING: 40.0, UNREAD: 60.0}
MAX_UNREAD = 2**20  # bytes of an answer
MAX_AHEAD = 2**16  # bytes of further requests, sent before the answer
_full = ApiError(503, "the server has too many open connections: try again later", code="too_many_connections")
_BODY = json.dumps(_full.body).encode()
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 30\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class LimitedConnection(H11Protocol):
    """`limit`: connections open at a time; one address may have half of them."""

    def __init__(self, *arguments: Any, limit: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limit = limit
        self._state: tuple[str | None, object] = (None, None)
        self._since = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=MAX_UNREAD)
        others = [other.client for other in self.connections if isinstance(other, LimitedConnection)]
        same = sum(1 for other in others if other and self.client and other[0] == self.client[0])
        if len(others) > self._limit or same > self._limit // 2:
            transport.write(FULL)
            transport.close()

    def handle_events(self) -> None:
        try:
            super().handle_events()
        except h11.LocalProtocolError:  # uvicorn answers garbage with a 400, also in the middle of another answer
            self.transport.abort()
            return
        if self.flow.read_paused and self.conn.their_state is h11.DONE:
            # uvicorn stops reading when a client sends ahead, and then does not notice that it leaves.
            if len(self.conn.trailing_data[0]) > MAX_AHEAD:
                self.transport.abort()
            else:
                self.flow.resume_reading()

    def check(self, now: float) -> None:
        """Close the connection if it has been in its state for too long. To be called every second."""
        state = self._current(), self.cycle  # a new request, a new cycle: it has time of its own
        if state != self._state:
            self._state, self._since = state, now
        elif state[0] is not None and now - self._since > SECONDS[state[0]]:
            self.transport.abort()

    def _current(self) -> str | None:
        part = self.conn.their_state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0])
        if part or self.conn.their_state is h11.SEND_BODY:
            return RECEIVING
        answered = self.transport.is_closing() or (self.cycle is not None and self.cycle.response_complete)
        if self.flow.write_paused or (answered and self.transport.get_write_buffer_size()):
            return UNREAD
        return None
