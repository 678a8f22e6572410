"""The endpoint's protocol. The engine is a fake with fixed answers; tests/real/test_serve.py has vLLM."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import agon_verl.serve.__main__ as command
import agon_verl.serve.app as app
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
    """Streams FINAL by the letter. While `hold` is cleared it does not answer; its last stage raises `fails`."""

    def __init__(self) -> None:
        self.players = Players("here", "base", adapters=dict.fromkeys("AB"), direction="A_to_B", max_prompt=99)  # type: ignore[arg-type]
        self.reader = SimpleNamespace(opened_by=lambda ids: False)
        self.control = SimpleNamespace(break_up=lambda text: text)
        self.alive, self.unfinished, self.hold, self.fails = True, 0, asyncio.Event(), None
        self.hold.set()
        self.requests: list[tuple] = []

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
        for letter in FINAL:
            text += letter
            yield letter
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
        assert (await served.client.get("/health")).json()["status"] == "ok"
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
        big = await served.client.post("/v1/chat/completions", content=b"x" * (app.MAX_BODY + 1), headers=key)
        assert big.status_code == 413

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


def test_a_client_that_reads_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "KEEP_ALIVE", 0.01)
    monkeypatch.setattr(app, "STALLED", 0.1)

    async def scene() -> None:
        served, sent = Served(), []
        body = json.dumps({"messages": PROBLEM, "stream": True}).encode()
        incoming = asyncio.Queue[dict]()
        incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})

        async def send(message: dict) -> None:
            sent.append(message)
            if len(sent) > 3:
                await asyncio.Event().wait()  # what a socket does whose buffer is full

        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
        await asyncio.wait_for(app.make_app(served.service)(scope, incoming.get, send), 30)  # type: ignore[arg-type]
        assert served.service.queue.accepted == 0 and sent[0]["status"] == 200

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
            command._check_address(*taken.getsockname())
    for wrong in (["--port", "99999"], ["--max-running", "0"], ["--drain", "-1"]):
        with pytest.raises(SystemExit):
            command.main(["here", *wrong])


def test_the_server_needs_no_trainer() -> None:
    code = "import sys, agon_verl.serve.__main__; print([m for m in ('verl', 'ray', 'vllm') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
