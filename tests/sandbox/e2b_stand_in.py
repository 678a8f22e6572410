"""A stand-in for e2b's HTTP service, as much of it as the real client needs to run a command.

It speaks the client's protocol (machines over REST, files over HTTP, commands over Connect streams in JSON) and runs
the commands on this machine: use it with trusted programs only. It was written from the client's source, so it cannot
show how the live service behaves. `faults` makes it fail on purpose.
"""

import asyncio
import base64
import json
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


class StandIn:
    """The service: its machines, the requests for machines, and the faults to inject."""

    def __init__(self) -> None:
        self.machines: dict[str, str] = {}  # id: its folder, which stands for /opt
        self._disk = tempfile.TemporaryDirectory(prefix="e2b-stand-in-")
        self.created = 0
        self.most = 0
        self.requests: list[dict] = []
        self.calls: Counter[str] = Counter()
        self.faults: dict[str, list[Fault]] = {}  # by operation, used up from the front

    def application(self) -> web.Application:
        application = web.Application(client_max_size=1 << 28)
        application.router.add_post("/v2/sandboxes", self._guarded("create", self._create))
        application.router.add_delete("/sandboxes/{id}", self._guarded("kill", self._kill))
        application.router.add_post("/sandboxes/{id}/timeout", self._guarded("timeout", self._timeout))
        application.router.add_post("/files", self._guarded("write", self._write))
        application.router.add_get("/health", self._guarded("health", self._health))
        application.router.add_post("/process.Process/Start", self._guarded("start", self._start))
        return application

    def _guarded(self, operation: str, handler: Callable) -> Callable:
        async def handle(request: web.Request) -> web.StreamResponse:
            self.calls[operation] += 1
            if self.faults.get(operation):
                answer = await self.faults[operation].pop(0)(request)
                if answer is not None:
                    return answer
            return await handler(request)

        return handle

    async def _create(self, request: web.Request) -> web.Response:
        if request.headers.get("X-API-KEY") != "e2b_test":
            return web.json_response({"code": 401, "message": "Invalid API key"}, status=401)
        self.requests.append(await request.json())
        machine = uuid.uuid4().hex[:20]
        self.machines[machine] = tempfile.mkdtemp(dir=self._disk.name)
        self.created += 1
        self.most = max(self.most, len(self.machines))
        answer = {"sandboxID": machine, "templateID": "t", "clientID": "c", "envdVersion": "0.6.4"}
        return web.json_response({**answer, "envdAccessToken": "token"}, status=201)

    async def _kill(self, request: web.Request) -> web.Response:
        folder = self.machines.pop(request.match_info["id"], None)
        if folder is None:
            return web.json_response({"code": 404, "message": "not found"}, status=404)
        shutil.rmtree(folder)
        return web.Response(status=204)

    async def _timeout(self, request: web.Request) -> web.Response:
        return web.Response(status=204 if request.match_info["id"] in self.machines else 404)

    def _folder(self, request: web.Request) -> str | None:
        return self.machines.get(request.headers.get("E2b-Sandbox-Id", ""))

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=204) if self._folder(request) else gone()

    async def _write(self, request: web.Request) -> web.Response:
        folder = self._folder(request)
        if folder is None:
            return gone()
        path = os.path.join(folder, os.path.basename(request.query["path"]))
        part = await (await request.multipart()).next()
        with open(path, "wb") as file:
            file.write(await part.read())
        return web.json_response([{"name": os.path.basename(path), "type": "file", "path": request.query["path"]}])

    async def _start(self, request: web.Request) -> web.StreamResponse:
        folder = self._folder(request)
        if folder is None:
            return gone()
        assert request.headers["Authorization"] == "Basic " + base64.b64encode(b"root:").decode()
        process = json.loads((await request.read())[5:])["process"]
        assert (process["cmd"], process["args"][:-1]) == ("/bin/bash", ["-l", "-c"])
        command = ["/bin/bash", "-c", process["args"][-1].replace("/opt/", f"{folder}/")]
        response = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
        await response.prepare(request)
        await send(response, {"event": {"start": {"pid": 1}}})
        environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, env=environment)
        for name, data in (("stdout", done.stdout), ("stderr", done.stderr)):
            for at in range(0, len(data), 1 << 16):
                chunk = base64.b64encode(data[at : at + (1 << 16)]).decode()
                await send(response, {"event": {"data": {name: chunk}}})
        end = {"exitCode": done.returncode, "exited": True, "status": f"exit status {done.returncode}"}
        await send(response, {"event": {"end": end}})
        await send(response, {}, flags=2)
        return response


async def send(response: web.StreamResponse, message: dict, flags: int = 0) -> None:
    data = json.dumps(message).encode()
    await response.write(struct.pack(">BI", flags, len(data)) + data)


def gone() -> web.Response:
    """What the proxy in front of a machine answers when it has ended."""
    return web.json_response({"message": "The sandbox was not found", "code": 502}, status=502)


async def _cancel_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def serve(service: StandIn) -> Iterator[str]:
    """The service's address; it runs in a thread, for the client may block its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def in_thread(work: Coroutine) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    runner = web.AppRunner(service.application(), shutdown_timeout=1)
    try:
        in_thread(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        in_thread(site.start())
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        in_thread(runner.cleanup())
        in_thread(_cancel_tasks())  # such as a request that a fault lets hang
        in_thread(loop.shutdown_default_executor())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        service._disk.cleanup()
