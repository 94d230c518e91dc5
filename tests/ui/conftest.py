"""Stores that real graphs have filled, and the inspector over them without a browser."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from html import unescape
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait
from starlette.testclient import TestClient

from langgraph_checkpoint_custom import CheckpointSaver, open_saver
from langgraph_checkpoint_custom.ui import create_app
from tests.conftest import BACKENDS, made_database
from tests.needs import need
from tests.ui.stories import all_stories

# Characters that no page may contain as they are stored.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
STEPS = 300


class Pages(TestClient):
    """A browser without scripts: gets pages, and checks what holds for all of them."""

    def page(self, path: str, status: int = 200, /, **params: str) -> str:
        """The HTML of a page."""
        response = self.get(path, params=params or None)
        assert response.status_code == status, response.text[:2000]
        assert not UNSEEN.search(response.text), UNSEEN.search(response.text)
        assert "<script>" not in response.text
        assert "Traceback" not in response.text
        return response.text

    def pages(self, path: str, /, **params: str) -> Iterator[str]:
        """The HTML of a page and of those that follow it."""
        html = self.page(path, 200, **params)
        yield html
        while found := re.search(r'rel="next" href="([^"]*)"', html):
            html = self.page(unescape(found[1]))
            yield html

    def data(self, path: str, /, **params: str) -> Any:
        """The JSON of an address."""
        response = self.get(path, params=params or None, headers={"accept": "application/json"})
        assert response.status_code == 200, response.text
        assert response.text.isascii()
        return response.json()


def names_in(html: str) -> list[str]:
    """The threads that a page lists, as they are written there."""
    return re.findall(r'class="id" href="[^"]*"><bdi>([^<]*)', html)


def pages_of(saver: CheckpointSaver, **options: Any) -> Pages:
    """The inspector of a saver."""
    return Pages(create_app(saver, **options), base_url="http://127.0.0.1:8000", follow_redirects=False)


@pytest.fixture(scope="session", params=BACKENDS)
def stories_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store with all stories, once for each database. Tests only read it."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            url = f"sqlite:///{tmp_path_factory.mktemp('stories') / 'stories.db'}"
        else:
            names = (request.getfixturevalue(name) for name in ("postgres_dsn", "postgres_template"))
            _, url = stack.enter_context(made_database(*names))
        with open_saver(url) as saver:
            saver.setup()
            all_stories(saver, steps=STEPS)
        yield url


@pytest.fixture(scope="session")
def served(stories_url: str) -> Iterator[Served]:
    """The inspector over all stories, served."""
    with open_saver(stories_url, read_only=True) as saver, Served(saver) as inspector:
        yield inspector


@pytest.fixture
def stories(stories_url: str) -> Iterator[CheckpointSaver]:
    """A saver that only reads the stories."""
    with open_saver(stories_url, read_only=True) as saver:
        yield saver


@pytest.fixture
def pages(stories: CheckpointSaver) -> Pages:
    """The inspector over the stories."""
    return pages_of(stories, name="the stories")


# A browser


class Served:
    """An inspector on a port of this machine, as the command serves it; or `mounted` in an application, at a path."""

    def __init__(self, saver: CheckpointSaver, *, mounted: str = "", **options: Any) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.url = f"http://{self.host}{mounted}"
        self.token = "the-token"
        app = create_app(saver, name="the stories", token=self.token, hosts=[self.host], **options)
        if mounted:
            application = FastAPI()
            application.mount(mounted, app)
            app = application
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})

    def __enter__(self) -> Served:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


# Seconds to wait for the browser.
PATIENCE = 150


class Browser:
    """Chromium without a window, and what tests do with it."""

    def __init__(self, driver: WebDriver) -> None:
        self.driver = driver
        self.served: Served | None = None

    def open(self, path: str, *, enter: bool = True) -> None:
        """Open a page, and wait until its scripts have done what they do at first."""
        assert self.served is not None
        if enter and not self.driver.current_url.startswith(self.served.url):
            self.driver.get(f"{self.served.url}/tenants?token={self.served.token}")
        self.driver.get(self.served.url + path)
        self.wait("return !document.querySelector('script') || Boolean(document.documentElement.dataset.ready)")

    def script(self, text: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self.driver.execute_script(text, *arguments)

    def wait(self, text: str, *arguments: Any) -> Any:
        """Wait until a script returns something true."""
        return WebDriverWait(self.driver, PATIENCE).until(lambda driver: driver.execute_script(text, *arguments))

    def find(self, selector: str) -> WebElement:
        """The first element; the timeline may be about to draw it."""
        wait = WebDriverWait(self.driver, PATIENCE)
        return wait.until(lambda driver: driver.find_element(By.CSS_SELECTOR, selector))

    def click(self, selector: str, by: str = By.CSS_SELECTOR) -> None:
        """Click the first element, the new one if the page replaces it meanwhile."""

        def clicked(driver: WebDriver) -> bool:
            driver.find_element(by, selector).click()
            return True

        WebDriverWait(self.driver, PATIENCE, ignored_exceptions=[StaleElementReferenceException]).until(clicked)

    def follow(self, text: str) -> None:
        """Click the link that has this text."""
        self.click(text, By.LINK_TEXT)

    def text(self, selector: str) -> str:
        """The text of the first element, at one moment."""
        found: str = self.wait("return document.querySelector(arguments[0])?.innerText", selector)
        return found

    def attribute(self, selector: str, name: str) -> str:
        """An attribute of the first element, at one moment."""
        found: str = self.wait(
            "return document.querySelector(arguments[0])?.getAttribute(arguments[1])", selector, name
        )
        return found

    def texts(self, selector: str) -> list[str]:
        """The texts of elements, at one moment: a live page may replace them."""
        found: list[str] = self.script(
            "return [...document.querySelectorAll(arguments[0])]"
            ".map((each) => (each.innerText ?? each.textContent).trim())",
            selector,
        )
        return found

    def keys(self, *keys: str) -> None:
        """Press keys in the timeline; wait until the checkpoint that is then chosen is shown."""
        picture = self.find(".picture")
        for key in keys:
            picture.send_keys(key)
        self.settle()

    def settle(self) -> None:
        """Wait until the checkpoint that is chosen in the timeline is shown."""
        self.wait(
            "const chosen = document.documentElement.dataset.chosen;"
            "const shown = document.querySelector('#checkpoint');"
            "return document.querySelector('.spot.chosen')?.dataset.id === chosen"
            " && shown && chosen === decodeURIComponent(shown.dataset.id)"
        )

    def resize(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Change the window and the colors."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        colors = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [colors]})

    def _log(self, kind: str) -> list[Any]:
        found: list[Any] = self.driver.get_log(kind)  # type: ignore[attr-defined]  # Chrome has it.
        return found

    def complaints(self) -> list[str]:
        """What the browser has reported since the last time: errors of scripts, and what the policy has refused."""
        return [entry["message"] for entry in self._log("browser") if entry["level"] == "SEVERE"]

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last time."""
        found = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        sent = [each["params"]["request"]["url"] for each in found if each["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith("data:")]


@pytest.fixture(scope="session")
def chromium() -> Iterator[WebDriver]:
    """The Chromium of the system, with its driver: `apt-get install chromium chromium-driver`."""
    program, driver = (
        need(shutil.which(name), "Chromium: install Debian's packages chromium and chromium-driver")
        for name in ("chromium", "chromedriver")
    )
    options = Options()
    options.binary_location = program
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
        "--disable-background-networking", "--no-first-run", "--force-prefers-reduced-motion",
        # Whatever asks for another host fails.
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        found = Chrome(options=options, service=Service(driver))
        found.set_script_timeout(120)
        yield found
        found.quit()


@pytest.fixture
def browser(chromium: WebDriver, served: Served) -> Iterator[Browser]:
    """A browser at the stories. In the end it must have reported nothing, and have asked nobody else."""
    yield from browsing(chromium, served)


def browsing(chromium: WebDriver, served: Served) -> Iterator[Browser]:
    """A browser at an inspector, for the time of a test."""
    browser = Browser(chromium)
    browser.served = served
    browser.resize(1280)
    browser.complaints()
    browser.requests()
    yield browser
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith(served.url)] == []
    assert browser.script("return document.title") != "owned"
    chromium.get("about:blank")
