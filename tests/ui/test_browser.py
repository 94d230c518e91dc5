"""The inspector in a real browser: what is drawn, what keys do, what is loaded, how it looks in all sizes and colors.

After each test, `browsing` checks that the browser has reported no error, that the policy has refused nothing, and that
no other host was asked for anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from langgraph_checkpoint_custom import CheckpointSaver
from tests.stores import Store
from tests.ui.conftest import STEPS, Browser, Served, browsing
from tests.ui.stories import HOSTILE_ID, chat, chat_graph, config_of

LEFT, RIGHT, UP, DOWN = Keys.ARROW_LEFT, Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.ARROW_DOWN
PAGES = {
    "threads": "/",
    "forks": "/thread?thread=support-fork",
    "question": "/thread?thread=support-1043",
    "error": "/thread?thread=broken",
    "stopped": "/thread?thread=killed",
    "deltas": "/thread?thread=delta-chat",
    "hostile": f"/thread?thread={quote(HOSTILE_ID, safe='')}",
    "list": "/checkpoints?thread=support-fork",
    "difference": "/difference?thread=support-fork",
    "inbox": "/inbox",
    "space": "/space",
    "space of a thread": "/space?thread=support-fork",
    "tenants": "/tenants",
    "problem": "/thread?thread=nobody",
}


def step(browser: Browser) -> str:
    return browser.text("#checkpoint h2")


# Threads


def test_the_list_fills_in_what_takes_longer(browser: Browser) -> None:
    browser.open("/")
    found = dict(zip(browser.texts(".threads .id"), browser.texts("[data-cell=state]"), strict=True))
    assert found["support-1043"] == "waiting"
    assert (found["broken"], found["counter"], found["delta-chat"]) == ("failed", "done", "done")
    lasts = browser.texts("[data-cell=text]")
    assert "asks Pay 129.00 € back for order A-1042?" in lasts
    assert "ai Answer 5" in lasts
    assert f"{STEPS}" in browser.texts("[data-cell=checkpoints]")


# The timeline


def test_keys_move_along_a_branch_and_between_branches(browser: Browser) -> None:
    browser.open(PAGES["forks"])
    assert step(browser) == "Step 8"
    browser.keys(LEFT)
    assert step(browser) == "Step 7"
    browser.keys(Keys.HOME)
    assert step(browser) == "Step -1"
    browser.keys(RIGHT, RIGHT, RIGHT, RIGHT)
    assert step(browser) == "Step 3"
    assert browser.texts(".chip.label") == ["before the answer"]
    browser.keys(DOWN)
    lower = step(browser)
    browser.keys(DOWN)
    browser.keys(UP, UP)
    assert browser.attribute(".spot.chosen", "data-id")
    assert lower != "Step 3" or browser.script("return document.querySelectorAll('.spot').length") == 16
    browser.keys(Keys.END)
    assert step(browser) == "Step 8"


def test_the_address_follows_and_back_goes_back(browser: Browser) -> None:
    browser.open(PAGES["forks"])
    browser.keys(LEFT)
    chosen = browser.attribute(".spot.chosen", "data-id")
    assert chosen
    assert f"id={chosen}" in browser.driver.current_url
    browser.keys(LEFT)
    browser.driver.back()
    browser.wait("return decodeURIComponent(document.querySelector('#checkpoint').dataset.id) === arguments[0]", chosen)
    browser.settle()
    browser.driver.refresh()
    browser.wait("return Boolean(document.documentElement.dataset.ready)")
    browser.settle()
    assert browser.attribute(".spot.chosen", "data-id") == chosen


@pytest.fixture
def lively(store: Store, chromium: WebDriver) -> Iterator[tuple[CheckpointSaver, Browser]]:
    """A store that a run writes to while a browser looks at it."""
    with store.open() as saver:
        saver.setup()
        with Served(saver) as served, contextmanager(browsing)(chromium, served) as browser:
            yield saver, browser


def test_a_running_thread_grows_on_the_screen(lively: tuple[CheckpointSaver, Browser]) -> None:
    saver, browser = lively
    graph = chat(saver, "running", answered=False)
    browser.open("/thread?thread=running")
    browser.wait("return document.querySelectorAll('.picture .spot').length === 5")
    assert "Waits for a human" in browser.text("#checkpoint")
    from langgraph.types import Command

    graph.invoke(Command(resume="yes"), config_of("running", 2))
    browser.wait("return document.querySelectorAll('.picture .spot').length === 7")
    browser.wait("return document.querySelector('#checkpoint').textContent.includes('on their way')")
    # Somebody who looks at an earlier step is left there.
    browser.keys(LEFT)
    more: Any = {"messages": [{"role": "user", "content": "again"}]}
    chat_graph(saver).invoke(more, config_of("running", 3))
    browser.wait("return document.querySelectorAll('.picture .spot').length === 10")
    assert step(browser) == "Step 4"


# Values


# Nobody else


def test_the_policy_stops_scripts_that_get_into_a_page(browser: Browser) -> None:
    browser.open(PAGES["hostile"])
    assert browser.complaints() == []
    browser.script(
        "const made = document.createElement('div');"
        "made.innerHTML = `<img src='/nothing' onerror=\"document.title='owned'\">`"
        "+ `<p style='color: red'>x</p><img src='http://elsewhere.example/x.png'>`;"
        "document.body.append(made);"
        "const script = document.createElement('script'); script.textContent = 'document.title = \"owned\"';"
        "document.body.append(script);"
    )
    # Four refusals, and that there is no such image, which may be reported before or after them.
    expected = {"inline event handler", "inline style", "inline script", "elsewhere.example", "/nothing - "}
    found: list[str] = []
    for _ in range(1_500):
        found += browser.complaints()
        if all(any(kind in each for each in found) for kind in expected):
            break
        browser.driver.execute_async_script("setTimeout(arguments[0], 100)")
    assert browser.script("return document.title") != "owned"
    browser.open("/")  # What was still loading ends with its page.
    found += browser.complaints()
    reported = [{kind for kind in expected if kind in each} for each in found]
    assert all(reported), found
    assert set().union(*reported) == expected, found
    browser.requests()


def test_hostile_texts_do_nothing(browser: Browser) -> None:
    for path in (PAGES["hostile"], "/", "/inbox", f"/checkpoints?thread={quote(HOSTILE_ID, safe='')}", "/space"):
        browser.open(path)
        assert browser.script("return document.title") != "owned"
        assert browser.script("return document.querySelectorAll('main script, main img, main b > b').length") == 0
    browser.open(PAGES["hostile"])
    for details in browser.driver.find_elements(By.CSS_SELECTOR, "details:not([open]) > summary"):
        if details.is_displayed():
            details.click()
    browser.keys(LEFT)
    assert "U+202E" in browser.text("h1")


# Looks, which do not depend on the database

looks = pytest.mark.parametrize("stories_url", ["sqlite"], indirect=True)


# For each text: the contrast with what is behind it, if that is less than it has to be.
CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
function rgb(color) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = color;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
}
function luminance([r, g, b]) {
  const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const [x, y, z] = [r, g, b].map((each) => linear(each / 255));
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
}
function behind(element) {
  for (let at = element; at; at = at.parentElement) {
    const color = rgb(getComputedStyle(at).backgroundColor);
    if (color[3] > 250) return color;
  }
  return rgb(getComputedStyle(document.documentElement).colorScheme === 'dark' ? '#000' : '#fff');
}
const found = [];
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const box = element.getBoundingClientRect();
  if (!own || !box.width || element.closest('.skip, option, noscript')) continue;
  const style = getComputedStyle(element);
  const text = element instanceof SVGElement ? style.fill : style.color;
  const ground = behind(element.closest('svg')?.parentElement ?? element);
  const [light, dark] = [luminance(rgb(text)), luminance(ground)].sort((a, b) => b - a);
  const ratio = (light + 0.05) / (dark + 0.05);
  if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${element.outerHTML.slice(0, 150)}`);
}
return found;
"""


@looks
@pytest.mark.parametrize("page", PAGES)
def test_everybody_can_use_every_page(browser: Browser, page: str) -> None:
    """It fits a narrow window; for those who hear it, everything has a name; in both colors, texts have contrast."""
    browser.resize(360)
    browser.open(PAGES[page])
    wide = browser.script(
        "return [...document.querySelectorAll('main *')].filter((each) =>"
        " each.getBoundingClientRect().right > innerWidth + 1 && getComputedStyle(each).position !== 'absolute'"
        " && !each.closest('.picture, .lines, table, .columns, .chip, svg.map'))"
        ".map((each) => each.outerHTML.slice(0, 200))"
    )
    assert wide == []
    assert browser.script("return document.documentElement.scrollWidth") <= 360
    assert browser.script("return document.documentElement.lang") == "en"
    assert len(browser.texts("h1")) == 1
    assert len(browser.texts("main")) == 1
    nameless = browser.script(
        "return [...document.querySelectorAll('a, button, input:not([type=hidden]), select, [role=listbox], section')]"
        ".filter((each) => !(each.textContent.trim() || each.ariaLabel || each.labels?.length || each.title))"
        ".map((each) => each.outerHTML.slice(0, 150))"
    )
    assert nameless == []
    assert browser.script("return [...document.querySelectorAll('img:not([alt])')].length") == 0
    assert browser.script("return [...document.querySelectorAll('thead th:not([scope])')].length") == 0
    for label in browser.script("return [...document.querySelectorAll('.spot')].map((each) => each.ariaLabel)"):
        assert label.startswith("step ")
    browser.script("for (const each of document.querySelectorAll('details')) each.open = true")
    for dark in (False, True):
        browser.resize(1280, dark=dark)
        assert browser.script(CONTRAST) == []
    browser.complaints()


@looks
def test_the_keyboard_reaches_everything(browser: Browser) -> None:
    browser.open(PAGES["forks"])
    browser.find("body").send_keys(Keys.TAB)
    assert browser.script("return document.activeElement.className") == "skip"
    reached = set()
    for _ in range(25):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(
            browser.script("const at = document.activeElement; return at.className || at.dataset.do || at.tagName")
        )
        if browser.script("return document.activeElement.className") == "picture":
            break
    assert {"in", "out", "fit", "hidden", "live", "picture"} <= reached
    browser.driver.switch_to.active_element.send_keys(LEFT)
    browser.wait("return document.querySelector('#checkpoint h2').textContent.includes('Step 7')")
    active = browser.script("return document.querySelector('.picture').getAttribute('aria-activedescendant')")
    assert browser.attribute(f"#{active}", "aria-selected") == "true"
