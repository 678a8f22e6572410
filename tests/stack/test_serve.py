"""The endpoint's protocol. The engine is a fake with fixed answers; tests/real/test_serve.py has vLLM."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import agon_verl.serve.__main__ as command
import agon_verl.serve.app as app
import agon_verl.serve.connection as connection
from agon_verl.game import transcript
from agon_verl.game.transcript import REASONING_TAGS
from agon_verl.inference import Completion, InferenceError, Players, Sampling
from agon_verl.serve.protocol import NEUTRAL, ApiError, parse_request
from agon_verl.serve.replies import join_parts
from agon_verl.serve.request import RequestQueue, models_of
from agon_verl.serve.splitter import StreamSplitter

PROBLEM = [{"role": "user", "content": "What is 2+3?"}]
DRAFT, FINAL = "<think>2 and 3</think>\n\nIt is <answer>6</answer>", "<think>hm</think>\n\nIt is <answer>5</answer>"


def read(text: str, cuts: list[int], opened: bool = False, stop: tuple[str, ...] = ()) -> tuple[dict, bool]:
    splitter, parts, edges = StreamSplitter(REASONING_TAGS, opened, stop), [], [0, *sorted(cuts), len(text)]
    for start, end in zip(edges, edges[1:], strict=False):
        parts += splitter.feed(text[start:end])
        if splitter.stopped:
            break
    return join_parts([*parts, *splitter.feed("", last=True)]), splitter.stopped


class TestSplitter:
    @pytest.mark.parametrize(
        "text, opened, parts",
        [
            ("<think>a</think>\n\nb", False, ("a", "b")),
            ("\n<think>\na</think>b", False, ("a", "b")),
            ("a</think>b", True, ("a", "b")),
            ("<think>a</think>b", True, ("a", "b")),  # the template opened it, and so did the model
            ("<think>a", False, ("a", None)),
            ("a < b", True, ("a < b", None)),
            ("<thin", False, (None, "<thin")),
            ("<thinking>a</think>", False, (None, "<thinking>a</think>")),
            (" a</think>b", False, (None, "a</think>b")),
            ("<think>a</think>b<think>c</think>d", False, ("a", "b<think>c</think>d")),
            ("<think></think>b ", False, (None, "b ")),
            ("", True, (None, None)),
        ],
    )
    def test_reasoning_and_content(self, text: str, opened: bool, parts: tuple) -> None:
        found, stopped = read(text, list(range(len(text))), opened)
        assert (found.get("reasoning_content"), found.get("content")) == parts and not stopped

    @given(st.lists(st.sampled_from(["<think>", "</think>", "<th", "</", "ab", "a", "b", " ", "\n"])), st.data())
    def test_the_result_does_not_depend_on_the_pieces(self, words: list[str], data: Any) -> None:
        text = "".join(words)
        cuts = data.draw(st.lists(st.integers(0, len(text))))
        opened, stop = data.draw(st.booleans()), data.draw(st.sampled_from([(), ("ab",), ("aba", "b"), ("\n\n", " a")]))
        assert read(text, cuts, opened, stop) == read(text, [], opened, stop)

    @given(st.lists(st.sampled_from(["<think>", "</think>", "x", " "])), st.booleans())
    def test_a_verifier_finds_the_same_summary_in_the_content(self, words: list[str], opened: bool) -> None:
        text = "".join(words)
        content = read(text, [], opened)[0].get("content", "")
        assume("<think>" not in content.rpartition("</think>")[2])
        assert transcript.read(content).summary == transcript.read(text, opened=opened).summary

    @pytest.mark.parametrize(
        "stop, content", [(("5",), "is "), (("hm",), "is 5"), (("is",), ""), (("s 5", "5"), "i"), (("5!",), "is 5")]
    )
    def test_only_the_content_is_stopped(self, stop: tuple[str, ...], content: str) -> None:
        for cuts in ([], list(range(30))):
            found, stopped = read("<think>hm</think> is 5", cuts, stop=stop)
            assert found["reasoning_content"] == "hm" and found.get("content", "") == content
            assert stopped == (content != "is 5")


def refused(**fields: Any) -> str:
    with pytest.raises(ApiError) as caught:
        parse_request(json.dumps({"messages": PROBLEM, **fields}).encode())
    assert caught.value.status == 400 and caught.value.body["error"]["type"] == "invalid_request_error"
    return str(caught.value)


class TestRequest:
    def test_sampling_parameters(self) -> None:
        default = Sampling(temperature=1.0, top_p=0.9, top_k=20, max_tokens=50)
        assert parse_request(json.dumps({"messages": PROBLEM}).encode()).sampling(default) == default
        fields = {"temperature": 0, "top_p": 1, "top_k": 0, "max_tokens": 9, "max_completion_tokens": 8, "seed": 7}
        ask = parse_request(json.dumps({"messages": PROBLEM, **fields, "stop": "x", "user": "me"}).encode())
        assert ask.sampling(default) == Sampling(0.0, 1.0, 0, 8, 7) and ask.stop == ["x"]
        with pytest.raises(ApiError, match="max_completion_tokens is 8, more than the limit 7 per stage"):
            ask.sampling(Sampling(max_tokens=7))

    def test_messages_become_plain_text(self) -> None:
        parts = [{"type": "text", "text": "What is"}, {"type": "text", "text": "2+3?"}]
        earlier = {"role": "assistant", "content": None, "reasoning_content": "hm", "refusal": None, "tool_calls": None}
        messages = [{"role": "developer", "content": "Be brief."}, earlier, {"role": "user", "content": parts}]
        assert parse_request(json.dumps({"messages": messages}).encode()).messages == [
            {"role": "system", "content": "Be brief."},
            {"role": "assistant", "content": ""},
            {"role": "user", "content": "What is\n2+3?"},
        ]

    def test_neutral_values_are_accepted_and_others_refused(self) -> None:
        for name, values in NEUTRAL.items():
            for value in (None, *values):
                parse_request(json.dumps({"messages": PROBLEM, name: value}).encode())
            assert refused(**{name: 7}) == f"{name} is not supported: remove it"
        assert refused(tools=[{"type": "function"}]) == "tools is not supported: remove it"
        assert refused(best_of=2) == "best_of is unknown: remove it"
        assert refused(agon={"drafts": True}) == "agon.drafts is unknown: remove it"

    @pytest.mark.parametrize(
        "fields, message",
        [
            ({"messages": None}, "messages is missing"),
            ({"messages": "hello"}, "messages: Input should be a valid list"),
            ({"messages": ["hello"]}, "messages.0: Input should be a valid dictionary"),
            ({"temperature": "hot"}, "temperature: Input should be a valid number"),
            ({"temperature": float("nan")}, "temperature: Input should be a finite number"),
            ({"temperature": 3}, "temperature: Input should be less than or equal to 2"),
            ({"top_p": 0}, "top_p: Input should be greater than 0"),
            ({"max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
            ({"max_tokens": True}, "max_tokens: Input should be a valid integer"),
            ({"seed": 2**63}, f"seed: Input should be less than {2**63}"),
            ({"stop": ["a"] * 5}, "stop: List should have at most 4 items after validation, not 5"),
            ({"stop": ""}, "stop.0: String should have at least 1 character"),
            ({"stream": "yes"}, "stream: Input should be a valid boolean"),
            ({"messages": [{"role": "tool", "content": "5"}]}, "messages.0.role is 'tool'"),
            ({"messages": [{"role": ["user"], "content": "5"}]}, "messages.0.role is ['user']"),
            ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content must be text"),
            ({"messages": [{"role": "user", "content": "\ud83d"}]}, "messages.0.content is not valid Unicode"),
            ({"messages": [{**PROBLEM[0], "name": "me"}]}, "messages.0.name is not supported"),
            ({"messages": [{**PROBLEM[0], "role": "assistant", "tool_calls": [1]}]}, "messages.0 calls a tool"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "a part of type 'image_url'"),
            ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 'use only {"type": "text"'),
        ],
    )
    def test_invalid_requests(self, fields: dict, message: str) -> None:
        assert message in refused(**fields)

    @pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff", b'"text"', b"[]"])
    def test_bodies_that_are_not_json_objects(self, body: bytes) -> None:
        with pytest.raises(ApiError, match="the body is not"):
            parse_request(body)


class FakeEngine:
    """Streams FINAL by the letter, or other `pieces`. While `hold` is cleared it does not answer; its last stage raises
    `fails`."""

    def __init__(self) -> None:
        self.players = Players("here", "base", adapters=dict.fromkeys("AB"), direction="A_to_B", max_prompt=99)  # type: ignore[arg-type]
        self.reader = SimpleNamespace(opened_by=lambda ids: False)
        self.control = SimpleNamespace(break_up=lambda text: text)
        self.alive, self.unfinished, self.hold, self.fails = True, 0, asyncio.Event(), None
        self.hold.set()
        self.requests: list[tuple] = []
        self.pieces: list[str] = list(FINAL)

    def as_text(self, messages: Any) -> list[dict]:
        return [dict(message) for message in messages]

    def prompt_ids(self, messages: Any) -> list[int]:
        return list(range(sum(len(message["content"].split()) for message in messages)))

    def count(self, text: str) -> int:
        return len(text.split())

    def excess(self, messages: Any) -> int:
        return len(self.prompt_ids(messages)) - self.players.max_prompt

    def read(self, text: str, opened: bool, finish: str) -> transcript.Transcript:
        return transcript.read(text, opened=opened, ended=finish == "stop")

    async def generate(self, messages: Any, player: str, sampling: Sampling) -> Completion:
        await self._wait(messages, player)
        return Completion(DRAFT, (1,) * 10, len(self.prompt_ids(messages)), "stop", False)

    async def stream(self, messages: Any, player: str, sampling: Sampling, enough: Any) -> AsyncIterator[Any]:
        await self._wait(messages, player)
        if self.fails:
            raise self.fails
        text = ""
        for piece in self.pieces:
            text += piece
            yield piece
            if enough():
                break
        yield Completion(text, (1,) * len(text), len(self.prompt_ids(messages)), "stop", False)

    async def _wait(self, messages: Any, player: str) -> None:
        self.requests.append((player, messages[-1]["content"]))
        self.unfinished += 1
        try:
            await self.hold.wait()
        finally:
            self.unfinished -= 1


class Served:
    """The application over the fake engine, and a client that calls it without a socket."""

    def __init__(self, running: int = 4, queue: int = 4, keys: tuple[str, ...] = ()) -> None:
        self.engine = FakeEngine()
        players = self.engine.players
        models = models_of(players, "agon", "A_to_B")
        self.service = app.Service(self.engine, models, RequestQueue(running, queue), keys)  # type: ignore[arg-type]
        transport = httpx.ASGITransport(app.make_app(self.service), raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://here")

    async def ask(self, headers: dict | None = None, **fields: Any) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json={"messages": PROBLEM, **fields}, headers=headers)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not reached():
            await asyncio.sleep(0.01)


def events(response: httpx.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def error_of(response: httpx.Response) -> str:
    return response.json()["error"]["message"]


def test_a_cascade_and_its_usage() -> None:
    async def scene() -> None:
        served = Served()
        reply = (await served.ask(agon={"draft": True})).json()
        (choice,) = reply["choices"]
        message = {"role": "assistant", "reasoning_content": "hm", "content": "It is <answer>5</answer>"}
        assert choice["message"] == message and choice["finish_reason"] == "stop"
        (first, plain), (second, challenge) = served.engine.requests
        assert (first, second) == ("A", "B") and plain == PROBLEM[0]["content"]
        assert reply["agon"]["shown"] == "It is [answer withheld]" and "\nIt is [answer withheld]\n" in challenge
        draft = reply["agon"]["draft"]
        assert (draft["player"], draft["reasoning_content"]) == ("A", "2 and 3")
        assert draft["content"] == "It is <answer>6</answer>" and draft["completion_tokens"] == 10
        usage, read_last = reply["usage"], len(challenge.split())
        assert usage["completion_tokens_details"] == {"draft_tokens": 10, "final_tokens": len(FINAL)}
        assert usage["prompt_tokens_details"] == {"draft_tokens": 3, "final_tokens": read_last}
        assert usage["total_tokens"] == 10 + len(FINAL) + 3 + read_last
        alone = (await served.ask(model="B", stop=["5", "<"])).json()
        assert alone["choices"][0]["message"]["content"] == "It is " and "agon" not in alone
        assert alone["usage"]["completion_tokens"] == FINAL.index("<answer>") + 1 and alone["model"] == "B"
        none = (await served.ask(model="base", agon={"draft": True})).json()
        assert none["agon"] == {"draft": None, "shown": None}

    asyncio.run(scene())


def test_the_chunks_of_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "KEEP_ALIVE", 0.01)

    async def scene() -> None:
        served = Served()
        served.engine.hold.clear()
        extras = {"stream_options": {"include_usage": True}, "agon": {"draft": True}}
        pending = asyncio.ensure_future(served.ask(stream=True, **extras))
        await until(lambda: bool(served.engine.requests))
        await asyncio.sleep(0.2)
        served.engine.hold.set()
        response = await pending
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.text.count(": still here\n\n") >= 1
        first, *chunks, last, usage, done = events(response)
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""} and done == "[DONE]"
        parts = join_parts(next(iter(chunk["choices"][0]["delta"].items())) for chunk in chunks)
        assert parts == {"reasoning_content": "hm", "content": "It is <answer>5</answer>"}
        assert last["choices"][0]["finish_reason"] == "stop" and last["agon"]["draft"]["player"] == "A"
        assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 10 + len(FINAL)
        assert len({chunk["id"] for chunk in (first, *chunks, last, usage)}) == 1

    asyncio.run(scene())


def test_errors_have_their_status() -> None:
    async def scene() -> None:
        served = Served(keys=("first", "second"))
        key = {"authorization": "Bearer second"}
        for wrong in (None, {"authorization": "Bearer third"}, {"authorization": "Basic first"}):
            assert (await served.ask(wrong)).status_code == 401
            assert (await served.client.get("/v1/models", headers=wrong)).status_code == 401
        models = (await served.client.get("/v1/models", headers=key)).json()["data"]
        assert [model["id"] for model in models] == ["agon", "A_to_B", "B_to_A", "A", "B", "base"]
        assert (await served.client.get("/health")).json() == {"status": "ok"}  # strangers do not learn the load
        assert (await served.client.get("/health", headers=key)).json()["running"] == 0
        unknown = await served.ask(key, model="gpt")
        assert unknown.status_code == 404 and unknown.json()["error"]["code"] == "model_not_found"
        for messages in ([], [{"role": "assistant", "content": "5"}], [{"role": "user", "content": " "}]):
            assert "must end with a user message" in error_of(await served.ask(key, messages=messages))
        long = [{"role": "user", "content": "a " * 98}]
        refusal = await served.ask(key, messages=long, stream=True)
        assert refusal.status_code == 400 and refusal.json()["error"]["code"] == "context_length_exceeded"
        assert "with the challenge prompt, more than the limit 99" in error_of(refusal)
        assert (await served.ask(key, messages=long, model="A")).status_code == 200
        for path, status in (("/v1/completions", 404), ("/health", 405)):
            response = await served.client.post(path)
            assert response.status_code == status and response.json()["error"]["type"]
        for path in (
            "/health/",
            "/v1/models/",
            "/v1/chat/completions/",
            "/../etc/passwd",
            "/%2e%2e/etc/passwd",
            "//x/",
        ):
            response = await served.client.get(path, headers=key)
            assert response.status_code == 404 and "location" not in response.headers

    asyncio.run(scene())


def test_a_full_queue_refuses_the_next_request() -> None:
    async def scene() -> None:
        served = Served(running=1, queue=1)
        served.engine.hold.clear()
        inside = [asyncio.ensure_future(served.ask()) for _ in range(2)]
        await until(lambda: served.service.queue.accepted == 2 and served.engine.unfinished == 1)
        health = (await served.client.get("/health")).json()
        assert health == {"status": "ok", "running": 1, "waiting": 1, "in_vllm": 1}
        away = await served.ask(stream=True)
        assert away.status_code == 429 and away.headers["retry-after"] == "1"
        assert error_of(away) == "the server is full (1 requests running, 1 waiting): try again later"
        served.engine.hold.set()
        assert [response.status_code for response in await asyncio.gather(*inside)] == [200, 200]
        assert (await served.ask()).status_code == 200

    asyncio.run(scene())


def test_failures_are_reported_before_a_stream_and_inside_one() -> None:
    async def scene() -> None:
        served = Served()
        served.engine.fails = InferenceError("vLLM ended a request with nothing")
        assert (await served.ask()).status_code == 500
        *_, last = events(await served.ask(stream=True))
        assert last["error"]["message"] == "vLLM ended a request with nothing"
        served.engine.fails = ZeroDivisionError("a secret")
        unforeseen = await served.ask()
        assert unforeseen.status_code == 500 and error_of(unforeseen) == "internal error: see the server's log"
        served.engine.alive = False
        served.engine.fails = InferenceError("dead")
        assert (await served.client.get("/health")).status_code == 503
        assert (await served.ask()).status_code == 503
        assert served.service.queue.accepted == 0

    asyncio.run(scene())


@pytest.mark.parametrize("in_time", [True, False])
def test_shutdown_waits_for_requests_and_then_cancels_them(in_time: bool) -> None:
    async def scene() -> None:
        served = Served(running=2)
        served.engine.hold.clear()
        inside = [asyncio.ensure_future(served.ask(stream=stream)) for stream in (False, True, False)]
        await until(lambda: served.service.queue.accepted == 3 and served.engine.unfinished == 2)
        drain = asyncio.ensure_future(served.service.drain(60 if in_time else 0.2, lambda: False))
        await until(lambda: served.service.draining)
        late = await served.ask()
        assert late.status_code == 503 and late.headers["retry-after"] == "30"
        assert (await served.client.get("/health")).json()["status"] == "draining"
        if in_time:
            served.engine.hold.set()
        await drain
        whole, stream, _ = await asyncio.gather(*inside)
        assert whole.status_code == (200 if in_time else 503)
        assert events(stream)[-1] == "[DONE]" if in_time else events(stream)[-1]["error"]["code"] == "shutting_down"
        assert (served.service.queue.accepted, served.engine.unfinished) == (0, 0)

    asyncio.run(scene())


def test_model_names() -> None:
    players = Served().engine.players
    assert models_of(players, "A_to_B", "A_to_B") == {m: m for m in ("A_to_B", "B_to_A", "A", "B", "base")}
    assert list(models_of(Players("x", "x"), "agon", "base")) == ["agon", "base"]
    with pytest.raises(InferenceError, match="--name A is the name of another mode than --mode A_to_B"):
        models_of(players, "A", "A_to_B")


def test_errors_are_reported_before_vllm_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    assert command.main(["/nowhere"]) == 1
    assert "agon-verl: /nowhere is not a folder" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InferenceError, match="cannot listen on .*: use another --host or --port"):
            command._bound(*taken.getsockname())
    for wrong in (["--port", "99999"], ["--max-running", "0"], ["--drain", "-1"]):
        with pytest.raises(SystemExit):
            command.main(["here", *wrong])


@pytest.mark.parametrize(
    "host, local", [("127.0.0.1", True), ("localhost", True), ("127.0.0.2", True), ("0.0.0.0", False), ("::", False)]
)
def test_a_public_address_needs_a_key(
    host: str, local: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    for arguments, key, goes_on in (([], "", local), (["--insecure"], "", True), ([], "secret", True)):
        monkeypatch.setenv("AGON_API_KEY", key)
        assert command.main(["/nowhere", "--host", host, "--port", "0", *arguments]) == 1
        message = capsys.readouterr().err
        assert ("/nowhere is not a folder" in message) == goes_on, message
        assert goes_on or "set AGON_API_KEY, or add --insecure" in message


def test_the_server_needs_no_trainer() -> None:
    code = "import sys, agon_verl.serve.__main__; print([m for m in ('verl', 'ray', 'vllm') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Listening(Served):
    """The same behind the command's own server, on a socket."""

    async def __aenter__(self) -> "Listening":
        queue = self.service.queue
        options = ["--max-running", str(queue.max_running), "--max-queue", str(queue.max_queue)]
        self.server = command.make_server(self.service, command.parse(["here", *options]))
        self.serving = asyncio.ensure_future(self.server.serve(command._bound("127.0.0.1", 0)))
        await until(lambda: self.server.started)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.should_exit = True
        await asyncio.wait_for(self.serving, 30)

    @property
    def open(self) -> int:
        return len(self.server.server_state.connections)

    async def connect(self, sent: bytes = b"", **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **options)
        writer.write(sent)
        return reader, writer

    async def free(self) -> None:
        """Until nothing is left of any request."""
        engine, queue = self.engine, self.service.queue
        await until(lambda: (self.open, queue.accepted, engine.unfinished) == (0, 0, 0))


def post(body: bytes = b"", *headers: str, length: int | None = None, **fields: Any) -> bytes:
    body = body or json.dumps({"messages": PROBLEM, **fields}).encode()
    lines = ["POST /v1/chat/completions HTTP/1.1", "host: here", *headers]
    if not any(header.startswith("transfer-encoding") for header in headers):
        lines.append(f"content-length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """What the server sends until it closes the connection."""
    received = b""
    try:
        while data := await asyncio.wait_for(reader.read(2**16), 30):
            received += data
    except ConnectionResetError:
        pass
    return received


async def answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(length))


GET = b"GET /health HTTP/1.1\r\nhost: here\r\n\r\n"


class TestAttacks:
    @pytest.mark.parametrize(
        "sent",
        [
            b"",
            b"G",
            b"GET /health HTTP/1.1\r\nhost: he",
            post(length=1000),
            post(b"5\r\n{", "transfer-encoding: chunked"),
            post(b"{", length=10**6),
            b"POST /nowhere HTTP/1.1\r\nhost: here\r\ncontent-length: 9\r\n\r\n",  # answered, and never complete
            GET + b"GET",
            GET + post(length=1000),
        ],
    )
    def test_half_sent_requests_are_closed(self, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(connection.SECONDS, connection.RECEIVING, 0.1)

        async def scene() -> None:
            async with Listening() as served:
                reader, writer = await served.connect(sent)
                await read_all(reader)
                await served.free()
                writer.close()

        asyncio.run(scene())

    def test_dripping_does_not_help(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(connection.SECONDS, connection.RECEIVING, 0.1)

        async def scene() -> None:
            async with Listening() as served:
                starts = (b"GET /health HTTP/1.1\r\n", post(length=10**5), GET)
                drips = [await served.connect(sent) for sent in starts]

                async def drip(writer: asyncio.StreamWriter, letters: bytes) -> None:
                    for _ in range(10**4):
                        writer.write(letters)
                        await asyncio.sleep(0.02)

                dripping = [
                    asyncio.ensure_future(drip(w, x))
                    for (_, w), x in zip(drips, (b"a: b\r\n", b" ", b"\r\n"), strict=True)
                ]
                await asyncio.gather(*(read_all(reader) for reader, _ in drips))
                await served.free()
                for task in dripping:
                    task.cancel()

        asyncio.run(scene())

    def test_a_body_counts_in_the_queue_and_has_limited_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(app, "BODY_SECONDS", 0.5)

        async def scene() -> None:
            async with Listening(running=1, queue=1) as served:
                halves = [await served.connect(post(length=1000)) for _ in range(2)]
                await until(lambda: served.service.queue.waiting == 2)
                refused, _ = await served.connect(post(length=1000))  # before its body
                assert (await answer(refused))[0] == 429
                for reader, _ in halves:
                    status, error = await answer(reader)
                    assert status == 408 and "not complete after 0.5 seconds" in error["error"]["message"]
                assert served.service.queue.accepted == 0
                assert (await served.ask()).status_code == 200

        asyncio.run(scene())

    def test_long_bodies_are_refused_while_they_arrive(self) -> None:
        async def scene() -> None:
            async with Listening() as served:
                limit = served.service.max_body
                declared, _ = await served.connect(post(length=limit + 1))
                assert (await answer(declared))[0] == 413
                chunked, writer = await served.connect(post(b"0" * 9, "transfer-encoding: chunked")[:-9])
                for _ in range(limit // 2**16 + 1):
                    writer.write(b"10000\r\n" + b" " * 2**16 + b"\r\n")
                status, error = await answer(chunked)
                assert status == 413 and error["error"]["message"] == f"the body has more than {limit} bytes"
                body = json.dumps({"messages": PROBLEM, "user": "x" * 10**6}).encode()
                small, _ = await served.connect(
                    post(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body), "transfer-encoding: chunked")
                )
                assert (await answer(small))[0] == 200
                packed, _ = await served.connect(post(b"\x1f\x8b", "content-encoding: gzip"))
                assert (await answer(packed))[0] == 415

        asyncio.run(scene())

    @pytest.mark.parametrize("stream", [True, False])
    def test_an_answer_that_nobody_reads_frees_its_slot_and_its_memory(
        self, stream: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(connection.SECONDS, connection.UNREAD, 0.1)
        monkeypatch.setattr(connection, "MAX_UNREAD", 2**16)

        async def scene() -> None:
            async with Listening(running=1) as served:
                served.engine.pieces = ["x" * 2**14] * 2000
                with socket.socket() as lazy:
                    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    lazy.connect(("127.0.0.1", served.port))
                    lazy.sendall(post(stream=stream, model="A"))
                    await until(lambda: bool(served.engine.requests))
                    await served.free()

        asyncio.run(scene())

    def test_too_many_connections_are_refused(self) -> None:
        async def scene() -> None:
            async with Listening(running=1, queue=1) as served:  # 260 in all
                addresses = [("127.0.0.1", 0)] * 130 + [("127.0.0.2", 0)] * 130
                clients = [await served.connect(local_addr=address) for address in addresses]
                await until(lambda: served.open == 260)
                for _ in range(20):  # with a request, which must not cost them the answer
                    reader, writer = await served.connect(post(), local_addr=("127.0.0.3", 0))
                    await asyncio.sleep(0.01)
                    status, error = await answer(reader)
                    assert status == 503 and error["error"]["code"] == "too_many_connections"
                    writer.close()
                clients[0][1].close()
                await until(lambda: served.open == 259)
                reader, _ = await served.connect(GET, local_addr=("127.0.0.2", 0))
                assert (await answer(reader))[0] == 503  # this address has half of them
                await until(lambda: served.open == 259)
                reader, _ = await served.connect(GET, local_addr=("127.0.0.3", 0))
                assert (await answer(reader))[0] == 200
                assert not served.engine.requests
                for _, writer in clients:
                    writer.close()

        asyncio.run(scene())

    @pytest.mark.parametrize("ahead", [GET, GET * 10**4, post(), post(length=10**6), b"G"])
    def test_a_request_before_the_answer_ends_the_connection(self, ahead: bytes) -> None:
        async def scene() -> None:
            async with Listening() as served:
                served.engine.hold.clear()
                reader, writer = await served.connect(post())
                await until(lambda: served.engine.unfinished == 1)
                writer.write(ahead)
                assert not await read_all(reader)
                await served.free()
                served.engine.hold.set()
                reader, writer = await served.connect(post())
                for _ in range(3):  # one after the other they are welcome
                    assert (await answer(reader))[0] == 200
                    writer.write(post())
                writer.close()

        asyncio.run(scene())

    @pytest.mark.parametrize("headers", [(), ("connection: close",)])
    def test_garbage_during_an_answer(self, headers: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
        async def scene() -> None:
            async with Listening() as served:
                served.engine.hold.clear()
                reader, writer = await served.connect(post(b"", *headers, stream=True))
                await reader.readuntil(b"role")
                writer.write(b"\x00\xff\r\n\r\n" * 5)
                if headers:  # after the last request of a connection all bytes are ignored
                    served.engine.hold.set()
                await read_all(reader)
                await served.free()

        asyncio.run(scene())
        assert "Traceback" not in caplog.text and "LocalProtocolError" not in caplog.text

    @pytest.mark.parametrize(
        "sent",
        [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9,  # TLS
            b"GET /health HTTP/1.1\r\nhost: here\r\n" + b"x: y\r\n" * 10**5,
            b"GET /" + b"a" * 10**6,
            b"GET /health HTTP/1.1\r\nhost: here\r\ncontent-length: -1\r\n\r\n",
            b"GET /health HTTP/1.1\r\nhost: here\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n",
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n" + b"f" * 10**5,
        ],
    )
    def test_malformed_requests_are_closed_at_once(self, sent: bytes) -> None:
        async def scene() -> None:
            async with Listening() as served:
                reader, _ = await served.connect(sent)
                received = await read_all(reader)
                assert not received or received.startswith(b"HTTP/1.1 400 ")
                await served.free()

        asyncio.run(scene())

    def test_there_are_no_web_sockets(self) -> None:
        async def scene() -> None:
            async with Listening() as served:
                upgrade = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
                reader, _ = await served.connect(GET[:-2] + upgrade + b"\r\n")
                assert (await answer(reader))[0] == 200

        asyncio.run(scene())

    @pytest.mark.parametrize(
        "messages, message",
        [
            (
                [{"role": "user", "content": "x" * (16 * 99 + 1)}],
                "1585 characters, more than the limit 1584 for 99 tokens",
            ),
            ([{"role": "user", "content": "x" * 2**19}], "524288 characters, more than"),
            ([{"role": "user", "content": "x"}] * 100, "100 messages, more than the limit 99 for 99 tokens"),
            ([{"role": "user", "content": ""}] * 30_000, "30000 messages"),
            ([{"role": "user", "content": [{"type": "text", "text": ""}] * 30_000}], "29999 characters"),
        ],
    )
    def test_a_prompt_that_cannot_fit_is_never_tokenized(self, messages: list, message: str) -> None:
        async def scene() -> None:
            served = Served()
            served.engine.prompt_ids = lambda messages: pytest.fail("tokenized")  # type: ignore[method-assign]
            for stream in (False, True):
                refusal = await served.ask(messages=messages, stream=stream)
                assert refusal.status_code == 400 and message in error_of(refusal)
                assert refusal.json()["error"]["code"] == "context_length_exceeded"

        asyncio.run(scene())

    def test_few_prompts_are_tokenized_at_a_time(self) -> None:
        async def scene() -> None:
            served, inside, most = Served(running=16, queue=16), [], []
            as_text, never = served.engine.as_text, threading.Event()

            def counted(messages: Any) -> list[dict]:
                inside.append(1)
                most.append(len(inside))
                never.wait(0.05)
                inside.pop()
                return as_text(messages)

            served.engine.as_text = counted  # type: ignore[method-assign]
            asks = [asyncio.ensure_future(served.ask(model="A")) for _ in range(16)]
            await until(lambda: bool(most))
            for gone in asks[8:]:
                gone.cancel()  # their threads go on
            assert {(await ask).status_code for ask in asks[:8]} == {200}
            assert max(most) <= app.READERS

        asyncio.run(scene())

    @pytest.mark.parametrize(
        "body",
        [
            b'{"messages": [' + b'"x",' * 250_000 + b'"x"]}',
            b'{"messages": [], ' + b",".join(b'"%d": 1' % n for n in range(90_000)) + b"}",
            b'{"messages": [], "agon": {' + b",".join(b'"%d": 1' % n for n in range(90_000)) + b"}}",
            b'{"messages": [], "stop": [' + b"1," * 400_000 + b"1]}",
            b'{"messages": [{"role": ' + b"[" * 900 + b"]" * 900 + b"}]}",
            b'{"messages": [{"role": "' + b"x" * 10**6 + b'"}]}',
            b'{"messages": [{"role": "user", "' + b"\\n" * 10**5 + b'": 1}]}',
            b'{"messages": [{"role": "user", "content": [{"type": "' + b"x" * 10**6 + b'"}]}]}',
            b'{"messages": [], "' + b"\\u001b\\n\\u2028" * 1000 + b'": 1}',
            b'{"messages": [], "model": "' + b"x\\n" * 10**5 + b'"}',
            b'{"messages": [], "stop": "' + b"x" * 10**6 + b'"}',
            b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": ' + b"9" * 4000 + b"}",
            b'{"messages": [], "max_tokens": ' + b"9" * 10**6 + b"}",
            b'{"messages": [], "temperature": 1e999}',
            b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
            b"{" * 10**6,
            b'{"a":' * 10**5,
        ],
    )
    def test_errors_are_short_lines_and_cost_little(self, body: bytes) -> None:
        async def scene() -> httpx.Response:
            return await Served().client.post("/v1/chat/completions", content=body)

        tracemalloc.start()
        try:
            response, peak = asyncio.run(scene()), tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert response.status_code in (400, 404)
        assert len(error_of(response)) < 500 and error_of(response).isprintable() and len(response.content) < 2000
        assert peak < 50 * 2**20

    def test_a_web_page_cannot_use_a_server_without_a_key(self) -> None:
        async def scene() -> None:
            page = {"origin": "https://example.org"}
            assert (await Served().ask(page)).status_code == 403
            assert (await Served(keys=("k",)).ask({**page, "authorization": "Bearer k"})).status_code == 200

        asyncio.run(scene())
