"""As much of the WebDriver protocol as the tests need, spoken to chromedriver with the standard library alone."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key that the W3C standard gives to elements
_KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "ArrowRight": "\ue014"}
_local = build_opener(ProxyHandler({}))  # chromedriver is on this machine, whatever proxy the network needs


def missing() -> str:
    """Why there can be no browser here; empty when there can."""
    if not shutil.which("chromedriver"):
        return "no chromedriver on the PATH (Debian: apt-get install chromium chromium-driver)"
    if not _browser():
        return "no chromium or chrome on the PATH (Debian: apt-get install chromium)"
    return ""


def _browser() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A headless browser of its own, whose profile and log are in the folder; it ends with the block."""
    log = folder / "chromedriver.log"
    with log.open("w") as out:
        driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=out, stderr=subprocess.STDOUT)
    try:
        session = Browser(f"http://127.0.0.1:{_port(driver, log)}", folder / "profile")
        try:
            yield session
        finally:
            session.end()
    finally:
        driver.terminate()
        driver.wait(30)


def _port(driver: subprocess.Popen[bytes], log: Path) -> str:
    """The port that chromedriver chose, which it says once it listens."""
    end = time.monotonic() + 60
    while time.monotonic() < end and driver.poll() is None:
        words = log.read_text("utf-8").split("started successfully on port ")
        if len(words) > 1 and "." in words[1]:
            return words[1].split(".")[0]
        time.sleep(0.05)
    raise RuntimeError(f"chromedriver did not start: {log.read_text('utf-8')}")


class Browser:
    """One session: a window, its page and its console."""

    def __init__(self, server: str, profile: Path) -> None:
        # The only pages are ours, and neither root nor most containers can have Chromium's sandbox.
        flags = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        flags.append(f"--user-data-dir={profile}")
        wanted = {
            "goog:chromeOptions": {"args": flags, "binary": _browser()},
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"pageLoad": 60_000, "script": 60_000},
        }
        self._session = server
        made = self._post("/session", capabilities={"alwaysMatch": wanted})
        self._session = f"{server}/session/{made['sessionId']}"

    def open(self, path: Path) -> None:
        """A file of this machine; what was on the console before is forgotten."""
        self.console()
        self._post("/url", url=path.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body in JavaScript returns."""
        return self._post("/execute/sync", script=script, args=list(arguments))

    def console(self) -> list[str]:
        """What the console said since it was asked last; in Chromium also what the page's policy refused."""
        return [entry["message"] for entry in self._post("/se/log", type="browser")]

    def click(self, css: str) -> None:
        self._bring(css)
        self._post(f"/element/{self._find(css)}/click")

    def type(self, css: str, text: str) -> None:
        self._post(f"/element/{self._find(css)}/clear")
        self._post(f"/element/{self._find(css)}/value", text=text)

    def press(self, key: str) -> None:
        """A key, for whatever has the focus."""
        actions = [{"type": kind, "value": _KEYS[key]} for kind in ("keyDown", "keyUp")]
        self._post("/actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def hover(self, css: str) -> None:
        self._bring(css)
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": {_ELEMENT: self._find(css)}}
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [move]}
        self._post("/actions", actions=[mouse])

    def settle(self) -> None:
        """Wait until what was asked for is on the screen."""
        frames = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done(null)))"
        self._post("/execute/async", script=frames, args=[])

    def resize(self, width: int, height: int = 900) -> None:
        """The page as a screen of this size shows it; a window cannot be as narrow as a telephone."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._develop("Emulation.setDeviceMetricsOverride", screen)
        self.settle()

    def prefer(self, **features: str) -> None:
        """What the reader's system asks for: prefers_color_scheme="dark"."""
        asked = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self._develop("Emulation.setEmulatedMedia", {"features": asked})

    def scripts(self, on: bool) -> None:
        self._develop("Emulation.setScriptExecutionDisabled", {"value": not on})

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def end(self) -> None:
        self._call("DELETE", "")

    def _bring(self, css: str) -> None:
        """Scroll there at once: a page that glides would move what is to be clicked."""
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center', behavior: 'instant'})", css)
        self.settle()

    def _find(self, css: str) -> str:
        found: str = self._post("/element", using="css selector", value=css)[_ELEMENT]
        return found

    def _develop(self, command: str, parameters: dict[str, Any]) -> Any:
        return self._post("/goog/cdp/execute", cmd=command, params=parameters)

    def _post(self, path: str, **content: Any) -> Any:
        return self._call("POST", path, content)

    def _call(self, method: str, path: str, content: dict[str, Any] | None = None) -> Any:
        body = None if content is None else json.dumps(content).encode()
        request = Request(self._session + path, body, {"Content-Type": "application/json"}, method=method)
        try:
            with _local.open(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except HTTPError as error:
            raise RuntimeError(f"{method} {path}: {json.load(error)['value']['message']}") from None
        except URLError as error:
            raise RuntimeError(f"{method} {path}: {error.reason}") from None
