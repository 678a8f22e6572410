"""The command line: `python -m agon_verl.serve TARGET`."""

import argparse
import asyncio
import functools
import ipaddress
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

import uvicorn

from agon_verl.inference.options import add_players, chosen_players, key_values
from agon_verl.inference.players import InferenceError, default_mode, read_mode
from agon_verl.inference.vllm_engine import Engine
from agon_verl.program import command, program_name
from agon_verl.serve.app import Service, make_app
from agon_verl.serve.connection import LimitedConnection
from agon_verl.serve.request import RequestQueue, models_of


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=program_name("serve"), description="Serve a pair behind an OpenAI-compatible chat endpoint."
    )
    add_players(parser)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="(127.0.0.1)")
    add("--port", type=int, default=8000, help="(8000)")
    add("--name", default="agon", help="of the model that plays --mode (agon)")
    add("--mode", help="A_to_B, B_to_A, A, B, base, … (the pair's direction)")
    add("--max-running", type=int, default=64, help="requests in progress at a time (64)")
    add("--max-queue", type=int, default=256, help="requests that wait (256); further ones get status 429")
    add("--drain", type=float, default=30, metavar="SECONDS", help="for accepted requests to end on shutdown (30)")
    add("--api-key-env", default="AGON_API_KEY", metavar="NAME", help="environment variable with the accepted API keys")
    add("--insecure", action="store_true", help="serve everyone who reaches --host, without an API key")
    options = parser.parse_args(arguments)
    if options.max_running < 1 or options.max_queue < 0 or options.drain < 0 or not 0 <= options.port < 2**16:
        parser.error("--max-running must be 1 or more, --max-queue and --drain not negative, --port below 65536")
    return options


class Server(uvicorn.Server):
    """uvicorn's server, except that it keeps listening while accepted requests end, so that new ones get a 503."""

    def __init__(self, config: uvicorn.Config, service: Service, limit: float) -> None:
        super().__init__(config)
        self._service, self._limit = service, limit

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            print(f"agon-verl: {', '.join(self._service.models)} at http://{address}/v1", flush=True)

    async def on_tick(self, counter: int) -> bool:
        for connection in list(self.server_state.connections) if counter % 10 == 0 else ():  # once a second
            if isinstance(connection, LimitedConnection):
                connection.check(time.monotonic())
        return await super().on_tick(counter)

    async def main_loop(self) -> None:
        await super().main_loop()
        await self._service.drain(self._limit, lambda: self.force_exit)


def serve(options: argparse.Namespace) -> None:
    keys = [key.strip() for key in os.environ.pop(options.api_key_env, "").split(",") if key.strip()]
    sockets = _bound(options.host, options.port)
    addresses = [ipaddress.ip_address(each.getsockname()[0].partition("%")[0]) for each in sockets]
    if not keys and not options.insecure and not all(address.is_loopback for address in addresses):
        raise InferenceError(
            f"other machines reach --host {options.host}, and {options.api_key_env} has no API key, so that everyone "
            f"there could use the model: set {options.api_key_env}, or add --insecure if that is what you want"
        )
    players = chosen_players(options)
    mode = options.mode or default_mode(players)
    read_mode(mode, players.names)  # raises if it is unknown
    if not players.checked:
        print(f"agon-verl: {players.base} is not on this machine yet, so its weights are not checked", file=sys.stderr)
    models = models_of(players, options.name, mode)
    engine = Engine(players, **{"max_num_seqs": options.max_running, **key_values(options.engine)})
    queue = RequestQueue(options.max_running, options.max_queue)
    asyncio.run(_run(Service(engine, models, queue, keys), options, sockets))


async def _run(service: Service, options: argparse.Namespace, sockets: list[socket.socket]) -> None:
    try:
        await make_server(service, options).serve(sockets)
    finally:
        service.engine.close()


def make_server(service: Service, options: argparse.Namespace) -> Server:
    limit = 2 * (options.max_running + options.max_queue) + 256  # room to get a 429, and to wait between two requests
    config = uvicorn.Config(
        make_app(service),
        http=functools.partial(LimitedConnection, limit=limit),  # type: ignore[arg-type]
        ws="none",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_level="error",  # a warning per malformed request could fill a disk
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
    )
    return Server(config, service, options.drain)


def _bound(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of `host`, which keeps the port and refuses everyone while vLLM starts."""
    sockets = []
    try:
        for family, kind, _, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            sockets.append(one := socket.socket(family, kind))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
    except OSError as error:
        for one in sockets:
            one.close()
        raise InferenceError(f"cannot listen on {host}:{port} ({error}): use another --host or --port") from None
    return sockets


@command
def main(arguments: Sequence[str] | None) -> None:
    options = parse(arguments)
    logging.basicConfig(format="agon-verl: %(message)s")
    logging.getLogger("agon_verl.serve").setLevel(logging.INFO)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    serve(options)


def _stop(number: int, _: Any) -> None:
    """For signals while vLLM starts, where KeyboardInterrupt gets lost, and when uvicorn passes them on at its end."""
    raise SystemExit(130 if number == signal.SIGINT else 0)


if __name__ == "__main__":
    raise SystemExit(main())
