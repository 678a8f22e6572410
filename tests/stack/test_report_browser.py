"""A report in a real browser: headless Chromium, controlled through a pipe. Skipped if it is not installed."""

import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agon_verl.report.__main__ import main
from tests.unit.report.example_runs import pair, write_matrix, write_pairs

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed (set CHROMIUM to its path)")


class Browser:
    """One page. `events` has the messages that are not replies."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        # The browser reads commands from descriptor 3 and writes to 4.
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        command = [str(CHROMIUM), *flags, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command], pass_fds=(to_browser, from_browser), stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self._received = b""
        self._number, self._session, self.events = 0, "", []  # type: ignore[var-annotated]
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        request |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(request).encode() + b"\0")
        while (reply := self._next()).get("id") != self._number:
            self.events.append(reply)
        assert "error" not in reply, reply
        return dict(reply["result"])

    def open(self, path: Path, width: int, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._out)
        os.close(self._in)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            assert select.select([self._in], [], [], 60)[0], "the browser does not answer"
            piece = os.read(self._in, 1 << 16)
            assert piece, "the browser has ended"
            self._received += piece
        message, _, self._received = self._received.partition(b"\0")
        return dict(json.loads(message))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    matrix = write_matrix(folder / "matrix", ("grpo", "adv"), seeds=2, steps=12, n=20)
    long = "w" * 500 + " <img src=x onerror=alert(1)></script><script>alert(2)</script> " + "$" * 300
    write_pairs(matrix / "adv/seed_0", 13, [pair(13, False, True, problem=long, draft=long, challenge=long)] * 300)
    assert main([str(matrix), "--out", str(folder / "out")]) == 0
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.mark.parametrize("width", [1280, 390, 320])
@pytest.mark.parametrize("dark", [False, True])
def test_it_opens_without_errors_requests_or_overflow(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width, dark)
    browser.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.value("document.scrollingElement.scrollWidth") <= width
    methods = [event["method"] for event in browser.events]
    assert not {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"} & set(methods)
    requested = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert {url for url in requested if not url.startswith("data:")} == {page.as_uri()}


def test_the_filter(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    count = "[...document.querySelectorAll('.card')].filter(c => c.offsetParent && {}).length"
    everything = browser.value(count.format("true"))
    browser.value("document.querySelector('button[data-kind=damage]').click()")
    damages = browser.value(count.format("c.dataset.kind === 'damage'"))
    assert 0 < damages < everything and browser.value(count.format("true")) == damages
    browser.value("document.querySelector('button[data-kind=\"\"]').click()")
    assert browser.value(count.format("true")) == everything
