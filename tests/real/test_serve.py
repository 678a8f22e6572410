"""The command serves a pair of random adapters on one vLLM engine, and the `openai` client talks to it.

The tests of this file share one server and run in order: the last one tells it to stop.
"""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from agon_verl.export.__main__ import main as export
from agon_verl.game import transcript
from agon_verl.game.prompts import challenge_messages
from agon_verl.game.withhold import withhold_answer
from agon_verl.pair.base import hash_of_base
from agon_verl.pair.checkpoint import Manifest, versions
from tests.real.hostile import KINDS, Attacker
from tests.real.runs import ROOT, kill_marked, marked

LONG = 1500  # tokens: some seconds
GENERATION = {"temperature": 0.6, "top_p": 0.95, "max_prompt_length": 384, "max_response_length": LONG}
PROBLEM = [{"role": "user", "content": "What is 2+3?"}]
GREEDY: dict[str, Any] = {"messages": PROBLEM, "temperature": 0, "max_tokens": 48}
DRAFT = {"extra_body": {"agon": {"draft": True}}}


@pytest.fixture(scope="module")
def pair(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported pair over a model that never ends its turn when it is greedy, and closes a reasoning block often."""
    folder = tmp_path_factory.mktemp("pair")
    base, checkpoint = folder / "base", folder / "run" / "global_step_3"
    tokenizer = AutoTokenizer.from_pretrained(tiny / "model")
    tokenizer.chat_template += "{% if add_generation_prompt %}<think>{% endif %}"
    model = AutoModelForCausalLM.from_pretrained(tiny / "model", dtype=torch.float32)
    model.config.update({"max_position_embeddings": 4096, "tie_word_embeddings": False})
    torch.manual_seed(5)
    rows = 0.02 * torch.randn_like(model.lm_head.weight)
    rows[tokenizer.eos_token_id] = 0  # below the greatest of the others
    rows[tokenizer.convert_tokens_to_ids("</think>")] *= 3
    model.lm_head.weight = torch.nn.Parameter(rows)
    for made in (tokenizer, model):
        made.save_pretrained(base)
    for seed, adapter in enumerate("AB"):
        torch.manual_seed(seed)
        config = LoraConfig(r=8, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        get_peft_model(plain, config).save_pretrained(checkpoint / "actor" / adapter)
    Manifest(3, str(base), hash_of_base(base), {"lora_rank": 8}, {}, versions(), {}, GENERATION).write(checkpoint)
    assert export([str(checkpoint), str(folder / "export"), "--direction", "B_to_A"]) == 0
    return folder


@dataclass
class Server:
    process: subprocess.Popen
    mark: str
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def health(self) -> httpx.Response:
        return httpx.get(f"{self.url}/health", trust_env=False, headers={"authorization": "Bearer first"}, timeout=60)

    def memory(self, processes: list[Path]) -> int:
        """Bytes that its processes have in memory."""
        return sum(1024 * int((path / "status").read_text().partition("VmRSS:")[2].split()[0]) for path in processes)

    def connections(self) -> int:
        """To its port, as the kernel counts them on the server's side."""
        port = f":{self.port:04X} "
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(f"{fields[1]} ".endswith(port) and fields[3] == "01" for fields in lines)

    def client(self, kind: Any = openai.OpenAI, key: str = "second") -> Any:
        http = (httpx.AsyncClient if kind is openai.AsyncOpenAI else httpx.Client)(trust_env=False, timeout=120)
        return kind(base_url=f"{self.url}/v1", api_key=key, max_retries=0, http_client=http)

    def processes(self) -> list[Path]:
        return list(marked(self.mark))

    def busy(self, seconds: float = 0.5) -> float:
        """The share of a core that its processes use."""

        def ticks() -> int:
            fields = [(path / "stat").read_text().rpartition(")")[2].split() for path in self.processes()]
            return sum(int(values[11]) + int(values[12]) for values in fields)

        before = ticks()
        time.sleep(seconds)
        return (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds


def free_port() -> int:
    """None that the kernel gives to a connection of another program before the server has it."""
    while True:
        port = random.randrange(12000, 32000)
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


@contextmanager
def started(target: Path, *arguments: object, keys: str = "") -> Iterator[Server]:
    port = free_port()
    mark, log = f"AGON_SERVED_HERE={port}", target.parent / f"{port}.log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **dict([mark.split("=")])}
    if keys:
        environment["AGON_API_KEY"] = keys
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "agon_verl.serve", *map(str, (target, "--port", port, *arguments))],
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Server(process, mark, port, log)
    finally:
        kill_marked(mark)
        process.wait(timeout=30)


def ready(server: Server) -> Server:
    def answers() -> bool:
        assert server.process.poll() is None, server.log.read_text()[-4000:]
        try:
            return server.health().status_code == 200
        except httpx.ConnectError:
            return False

    wait_for(answers, 300)
    return server


def wait_for(reached: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def server(pair: Path) -> Iterator[Server]:
    with started(pair / "export", "--max-running", 8, "--max-queue", 24, "--drain", 60, keys="first,second") as server:
        yield ready(server)


@pytest.fixture(scope="module")
def client(server: Server) -> openai.OpenAI:
    return server.client()


def parts_of(response: Any) -> tuple[str | None, str]:
    message = response.choices[0].message
    return getattr(message, "reasoning_content", None), message.content


def test_the_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["agon", "A_to_B", "B_to_A", "A", "B", "base"]


def test_vllm_has_one_process(server: Server) -> None:
    names = [(path / "cmdline").read_bytes().split(b"\0")[0].decode() for path in server.processes()]
    assert [name for name in names if name.startswith("VLLM")] == ["VLLM::EngineCore"]


def test_a_chat_is_the_cascade_played_by_hand(client: openai.OpenAI) -> None:
    shown = set()
    for number in (0, 3, 7):
        problem = [{"role": "user", "content": f"What is 2+{number}?"}]
        request = {**GREEDY, "messages": problem}
        whole = client.chat.completions.create(model="agon", **request, **DRAFT)
        draft, final = whole.agon["draft"], parts_of(whole)
        alone = client.chat.completions.create(model="B", **request)
        assert (draft.get("reasoning_content"), draft["content"]) == parts_of(alone) and draft["player"] == "B"
        closed = f"</think>{draft['content']}" if draft["content"] else ""
        summary = transcript.read((draft.get("reasoning_content") or "") + closed, opened=True).summary
        assert whole.agon["shown"] == (summary and withhold_answer(summary))
        shown.add(summary)
        by_hand = {**request, "messages": challenge_messages(problem, whole.agon["shown"])}
        second = client.chat.completions.create(model="A", **by_hand)
        assert parts_of(second) == final and second.choices[0].finish_reason == "length"
        used, first, last = whole.usage, alone.usage, second.usage
        assert used.prompt_tokens == first.prompt_tokens + last.prompt_tokens
        assert used.completion_tokens == 96 and used.total_tokens == used.prompt_tokens + 96
        assert used.completion_tokens_details.draft_tokens == used.completion_tokens_details.final_tokens == 48
        assert used.prompt_tokens_details.draft_tokens == first.prompt_tokens == draft["prompt_tokens"]
        assert "</think>" not in (final[0] or "")
    assert None in shown and len(shown) > 1  # some drafts have closed their reasoning and some have not


def test_every_model_answers_differently(client: openai.OpenAI) -> None:
    names = ("A_to_B", "B_to_A", "A", "B", "base")
    answers = {name: parts_of(client.chat.completions.create(model=name, **GREEDY)) for name in names}
    assert len(set(answers.values())) == len(names)
    assert answers["B_to_A"] == parts_of(client.chat.completions.create(model="agon", **GREEDY))
    earlier = [{"role": "system", "content": "Add."}, *PROBLEM, {"role": "assistant", "content": "5"}, *PROBLEM]
    later = client.chat.completions.create(model="agon", **{**GREEDY, "messages": earlier}, **DRAFT)
    assert later.usage.prompt_tokens_details.draft_tokens > 12 and parts_of(later) != answers["B_to_A"]


@pytest.mark.parametrize("request_fields", [{}, {"temperature": 1.5, "top_p": 0.9, "seed": 2**63 - 1}, {"model": "A"}])
def test_a_stream_adds_up_to_the_complete_answer(client: openai.OpenAI, request_fields: dict) -> None:
    request = {"model": "agon", **GREEDY, **request_fields}
    whole = client.chat.completions.create(**request, **DRAFT)
    chunks = list(
        client.chat.completions.create(**request, **DRAFT, stream=True, stream_options={"include_usage": True})
    )
    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    assert deltas[0].role == "assistant" and len(chunks) > 8
    parts = ["".join(getattr(delta, name, None) or "" for delta in deltas) for name in ("reasoning_content", "content")]
    assert parts == [part or "" for part in parts_of(whole)]
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-2].agon == whole.agon and chunks[-1].usage == whole.usage and chunks[-1].choices == []


def test_a_stop_string_ends_the_content(client: openai.OpenAI, server: Server) -> None:
    request = {**GREEDY, "model": "A"}
    content = client.chat.completions.create(**request).choices[0].message.content
    stop = content[10:13]
    stopped = client.chat.completions.create(**{**request, "max_tokens": LONG}, stop=[stop])
    assert stopped.choices[0].message.content == content[: content.index(stop)]
    assert stopped.choices[0].finish_reason == "stop" and stopped.usage.completion_tokens < 48
    wait_for(lambda: server.health().json()["in_vllm"] == 0, 2)


def test_bad_requests(client: openai.OpenAI, server: Server) -> None:
    def refused(kind: type[openai.APIStatusError], message: str, **fields: Any) -> None:
        with pytest.raises(kind) as caught:
            client.chat.completions.create(**{"model": "agon", **GREEDY, **fields})
        assert message in str(caught.value) and caught.value.body["type"] == "invalid_request_error" or kind is not bad

    bad = openai.BadRequestError
    refused(openai.NotFoundError, "model 'gpt-4' does not exist: use one of agon, A_to_B", model="gpt-4")
    refused(bad, "messages must end with a user message", messages=[])
    refused(bad, "messages must end with", messages=[*PROBLEM, {"role": "assistant", "content": "5"}])
    refused(bad, "more than the limit 384", messages=[{"role": "user", "content": "2+3 " * 400}])
    refused(bad, "more than the limit 384", messages=[{"role": "user", "content": "2+3 " * 400}], stream=True)
    refused(bad, f"max_tokens is 9999, more than the limit {LONG} per stage", max_tokens=9999)
    refused(bad, "temperature: Input should be", temperature=-1)
    refused(bad, "n is not supported", n=2)
    refused(bad, "tools is not supported", tools=[{"type": "function", "function": {"name": "f"}}])
    refused(bad, "logprobs is not supported", logprobs=True)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    refused(bad, "a part of type 'image_url': use only", messages=[{"role": "user", "content": [image]}])
    with pytest.raises(openai.AuthenticationError, match="the API key is missing or wrong"):
        server.client(key="third").chat.completions.create(model="agon", **GREEDY)
    keyed = {"authorization": "Bearer first"}
    garbled = httpx.post(f"{server.url}/v1/chat/completions", content=b"{", headers=keyed, trust_env=False)
    assert garbled.status_code == 400 and garbled.json()["error"]["message"] == "the body is not JSON"
    assert server.health().json() == {"status": "ok", "running": 0, "waiting": 0, "in_vllm": 0}
    assert "third" not in server.log.read_text() and "first" not in server.log.read_text()


@pytest.mark.parametrize("clients", [32, 64])
def test_many_clients_at_once(server: Server, clients: int) -> None:
    """8 may run and 24 wait: 32 fit, of 64 some get status 429."""

    async def ask(client: openai.AsyncOpenAI, number: int) -> tuple[int, str]:
        problem = [{"role": "user", "content": f"What is {number}+3?"}]
        request = {**GREEDY, "messages": problem, "model": ("agon", "A", "B", "A_to_B")[number % 4]}
        try:
            if number % 3:
                return 200, (await client.chat.completions.create(**request)).choices[0].finish_reason
            chunks = [chunk async for chunk in await client.chat.completions.create(**request, stream=True)]
            return 200, chunks[-1].choices[0].finish_reason
        except openai.RateLimitError as error:
            assert 1 <= int(error.response.headers["retry-after"]) <= 60
            return 429, error.code

    async def all_of_them() -> list[tuple[int, str]]:
        async with server.client(openai.AsyncOpenAI) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(clients)))

    outcomes = asyncio.run(all_of_them())
    assert set(outcomes) == {(200, "length"), *([(429, "queue_full")] if clients > 32 else [])}
    assert server.health().json() == {"status": "ok", "running": 0, "waiting": 0, "in_vllm": 0}


def test_hostile_clients_take_nothing_from_honest_ones(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """64 clients, of which half attack. Every honest answer is the one that its question gets alone."""
    rounds, clients, models = 2, 32, ("agon", "A", "B", "A_to_B")

    def request(number: int) -> dict[str, Any]:
        problem = [{"role": "user", "content": f"What is {number}+3?"}]
        return {**GREEDY, "messages": problem, "model": models[number % 4]}

    async def honest(client: openai.AsyncOpenAI, number: int) -> list[tuple[str | None, str]]:
        return [parts_of(await client.chat.completions.create(**request(number))) for _ in range(rounds)]

    async def scene(attack: bool) -> tuple[list[list[tuple[str | None, str]]], int, float, int]:
        attackers = [Attacker(server.port) for _ in range(clients if attack else 0)]
        tasks = [asyncio.ensure_future(a.repeat(KINDS[n % len(KINDS)])) for n, a in enumerate(attackers)]
        memory: list[int] = []
        processes = server.processes()

        async def watch() -> None:
            while True:
                memory.append(server.memory(processes))
                await asyncio.sleep(0.1)

        watching = asyncio.ensure_future(watch())
        await asyncio.sleep(3)
        start = time.monotonic()
        async with server.client(openai.AsyncOpenAI) as client:
            answers = await asyncio.gather(*(honest(client, number) for number in range(clients)))
        took = time.monotonic() - start
        for task in (*tasks, watching):
            task.cancel()
        await asyncio.gather(*tasks, watching, return_exceptions=True)
        return answers, max(memory), took, sum(attacker.connections for attacker in attackers)

    with started(pair / "export", "--max-running", 8, "--max-queue", 88, "--drain", 5, keys="first,second") as server:
        with ready(server).client() as client:
            alone = [parts_of(client.chat.completions.create(**request(number))) for number in range(clients)]
        quiet, before, alone_took, _ = asyncio.run(scene(attack=False))
        answers, most, took, opened = asyncio.run(scene(attack=True))
        with capsys.disabled():
            print(
                f"\n{clients * rounds} honest answers in {took:.1f} s under {opened} hostile connections, without "
                f"them in {alone_took:.1f} s; memory {before / 2**20:.0f} MiB before, {most / 2**20:.0f} MiB at most"
            )
        assert quiet == [[answer] * rounds for answer in alone]
        assert answers == quiet
        assert most - before < 200 * 2**20
        wait_for(lambda: server.health().json() == {"status": "ok", "running": 0, "waiting": 0, "in_vllm": 0}, 60)
        wait_for(lambda: server.connections() == 0, 120)
        with server.client() as client:
            assert parts_of(client.chat.completions.create(**request(0))) == alone[0]
        assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("left", ["draft", "final", "whole"])
def test_a_disconnected_client_frees_the_engine(server: Server, left: str) -> None:
    """During a draft, in the middle of a streamed answer, and while waiting for a complete one."""
    request = {**GREEDY, "max_tokens": LONG, "model": "A" if left == "final" else "agon", "stream": left != "whole"}
    with httpx.Client(headers={"authorization": "Bearer first"}, trust_env=False) as http:
        if left == "whole":
            with pytest.raises(httpx.ReadTimeout):
                http.post(f"{server.url}/v1/chat/completions", json=request, timeout=1)
        else:
            with http.stream("POST", f"{server.url}/v1/chat/completions", json=request, timeout=60) as response:
                lines = (line for line in response.iter_lines() if line)
                for _ in range(1 if left == "draft" else 5):
                    next(lines)
                wait_for(lambda: server.health().json()["in_vllm"] == 1, 5)
                assert server.health().json()["running"] == 1
                wait_for(lambda: server.busy() > 0.3, 5)  # other programs may have the cores meanwhile
    wait_for(lambda: server.health().json() == {"status": "ok", "running": 0, "waiting": 0, "in_vllm": 0}, 2)
    wait_for(lambda: server.busy() < 0.1, 5)  # vLLM itself has stopped, long before the end


def test_shutdown_ends_accepted_requests_and_leaves_no_process(server: Server, client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="A", **{**GREEDY, "max_tokens": 600}, stream=True)
    next(stream)
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: server.health().status_code == 503, 2)
    assert server.health().json()["status"] == "draining"
    with pytest.raises(openai.InternalServerError, match="503 - the server is shutting down"):
        client.chat.completions.create(model="A", **GREEDY)
    *_, last = stream
    assert last.choices[0].finish_reason == "length"
    assert server.process.wait(timeout=30) == 0, server.log.read_text()[-4000:]
    wait_for(lambda: not server.processes(), 5)
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("answering", [True, False])
def test_a_base_alone_is_served_and_the_death_of_vllm_is_reported(pair: Path, answering: bool) -> None:
    with started(pair / "base", "--max-tokens", LONG, "--max-prompt", 384, "--drain", 1) as server:
        client = ready(server).client(key="any")
        assert [model.id for model in client.models.list()] == ["agon", "base"]
        if not answering:
            assert kill_marked(server.mark, "VLLM::EngineCore", signal.SIGSTOP) == 1
        stream = client.chat.completions.create(model="agon", **{**GREEDY, "max_tokens": LONG}, stream=True)
        next(stream)  # the role, which is sent before vLLM gets the request
        if answering:
            next(stream)
        else:
            time.sleep(1)
        assert kill_marked(server.mark, "VLLM::EngineCore") == 1
        with pytest.raises(openai.APIError, match="the vLLM engine has died: restart the server"):
            list(stream)
        assert (server.health().status_code, server.health().json()["status"]) == (503, "dead")
        with pytest.raises(openai.InternalServerError, match="503 - the vLLM engine has died"):
            client.chat.completions.create(model="base", **GREEDY)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=30) == 0
        wait_for(lambda: not server.processes(), 5)
