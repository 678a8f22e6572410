"""Clients that attack a server: each opens connections of its kind until it is cancelled, and expects nothing back."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

PATH = "POST /v1/chat/completions HTTP/1.1\r\nhost: here\r\nauthorization: Bearer first\r\n"
CHUNKED = f"{PATH}transfer-encoding: chunked\r\n\r\n".encode()
PROBLEM = [{"role": "user", "content": "What is 1+1?"}]


def post(fields: dict[str, Any], length: int | None = None) -> bytes:
    body = json.dumps(fields).encode()
    return f"{PATH}content-length: {len(body) if length is None else length}\r\n\r\n".encode() + body


class Attacker:
    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0

    async def open(self, sent: bytes = b"", small: bool = False) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        plain = socket.socket()
        if small:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", self.port))
        self.connections += 1
        reader, writer = await asyncio.open_connection(sock=plain, limit=2**10 if small else 2**16)
        writer.write(sent)
        return reader, writer

    async def repeat(self, once: Callable[["Attacker"], Awaitable[None]]) -> None:
        while True:
            try:
                await once(self)
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.1)


async def until_closed(reader: asyncio.StreamReader) -> None:
    while await reader.read(2**16):
        pass


async def nothing(attacker: Attacker) -> None:
    reader, writer = await attacker.open()
    await until_closed(reader)
    writer.close()


async def slow_headers(attacker: Attacker) -> None:
    _, writer = await attacker.open(PATH.encode())
    for number in count():
        writer.write(f"x-{number}: y\r\n".encode())
        await writer.drain()
        await asyncio.sleep(0.5)


async def half_a_body(attacker: Attacker) -> None:
    reader, writer = await attacker.open(post({"messages": PROBLEM}, length=10**6))
    await until_closed(reader)
    writer.close()


async def slow_body(attacker: Attacker) -> None:
    _, writer = await attacker.open(post({"messages": PROBLEM}, length=10**6))
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.2)


async def huge_message(attacker: Attacker) -> None:
    """8 MB in one message, and the most that the server reads of one."""
    for size in (8_000_000, 1_000_000):
        text = "What is 2+3 and the sum of all? " * (size // 32)
        reader, writer = await attacker.open(post({"messages": [{"role": "user", "content": text}]}))
        await reader.readuntil(b"\r\n")
        writer.close()


async def many_messages(attacker: Attacker) -> None:
    for number in (100_000, 10_000):
        for message in ({"role": "user", "content": ""}, "x"):
            reader, writer = await attacker.open(post({"messages": [message] * number}))
            await reader.readuntil(b"\r\n")
            writer.close()


async def endless_body(attacker: Attacker) -> None:
    _, writer = await attacker.open(CHUNKED)
    while True:
        writer.write(b"1\r\nx\r\n" * 5000 + b"8000\r\n" + b" " * 2**15 + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)


async def cancelled(attacker: Attacker) -> None:
    """A long answer that is left at its beginning, before it, and with a further request sent ahead."""
    for stream, times in ((True, 1), (False, 1), (False, 2)):
        reader, writer = await attacker.open(times * post({"messages": PROBLEM, "stream": stream, "max_tokens": 1500}))
        if stream:
            await reader.readuntil(b"role")
        await asyncio.sleep(0.3)
        writer.close()


async def slow_reader(attacker: Attacker) -> None:
    """Long answers that nobody reads."""
    _, writer = await attacker.open(post({"messages": PROBLEM, "stream": True, "max_tokens": 1500}), small=True)
    writer.transport.pause_reading()
    await asyncio.sleep(20)
    writer.close()


async def garbage(attacker: Attacker) -> None:
    for sent in (
        b"\x16\x03\x01\xff" * 99,
        PATH.encode() + b"x: y\r\n" * 10**4,
        b"GET /health HTTP/1.1\r\n\r\n" * 10**4,
    ):
        reader, writer = await attacker.open(sent)
        await reader.readuntil(b"\r\n")
        writer.close()
        await asyncio.sleep(0.05)


KINDS = (
    nothing,
    slow_headers,
    half_a_body,
    slow_body,
    huge_message,
    many_messages,
    endless_body,
    cancelled,
    slow_reader,
    garbage,
)
