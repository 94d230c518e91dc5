"""Changes in a real browser: the forms of `--write` are filled in and clicked, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from langgraph_checkpoint_custom import CheckpointSaver
from tests.stores import Store
from tests.ui.conftest import Browser, Served, browsing
from tests.ui.stories import chat, config_of


class Editor(NamedTuple):
    """A browser at an inspector with changes, its store, and the graph that it answers with."""

    browser: Browser
    saver: CheckpointSaver
    graph: Any

    def ids(self, thread_id: str) -> list[str]:
        """The checkpoints of a thread, newest first."""
        return [one.checkpoint_id for one in self.saver.history(config_of(thread_id))]

    def ask(self, what: str, typed: str | None = None) -> str:
        """Fill in the form of a change and send it; return what the page after it asks."""
        browser = self.browser
        if browser.script("return document.querySelector('details.changes:not([open])') !== null"):
            browser.click("details.changes > summary")
        browser.script(
            "const form = document.querySelector(`form:has(input[name=what][value='${arguments[0]}'])`);"
            "form.id = 'asked';",
            what,
        )
        if typed is not None:
            browser.find("#asked input:not([type=hidden])").send_keys(typed)
        browser.click("#asked button")
        browser.wait("return document.querySelector('h1')?.textContent === 'Sure?'")
        return browser.text(".problem")

    def say(self, yes: bool) -> None:
        """Click Yes or No, and wait for the page after that."""
        self.browser.click(".confirm button" if yes else ".confirm a")
        self.browser.wait(
            "return document.querySelector('h1') && document.querySelector('h1').textContent !== 'Sure?'"
            " && Boolean(document.documentElement.dataset.ready)"
        )

    def change(self, what: str, typed: str | None = None) -> None:
        """Make a change."""
        self.ask(what, typed)
        self.say(yes=True)


@pytest.fixture
def editor(request: pytest.FixtureRequest, store: Store, chromium: WebDriver) -> Iterator[Editor]:
    """A browser at a store with a chat that has ended, and one that waits for an answer.

    The parameter is the path at which an application has mounted the inspector.
    """
    mounted = getattr(request, "param", "")
    with store.open() as saver:
        saver.setup()
        chat(saver, "t")
        graph = chat(saver, "asks", answered=False)
        with (
            Served(saver, mounted=mounted, write=True, graph=graph) as served,
            contextmanager(browsing)(chromium, served) as browser,
        ):
            yield Editor(browser, saver, graph)


def test_a_label_is_given_and_removed(editor: Editor) -> None:
    browser = editor.browser
    browser.open("/thread?thread=t")
    assert editor.ask("label", "the <end>").endswith("the label “the <end>”?")
    editor.say(yes=True)
    assert browser.texts("#checkpoint .chip.label") == ["the <end>"]
    assert list(editor.saver.labels("t")) == ["the <end>"]
    editor.change("unlabel")
    assert browser.texts("#checkpoint .chip.label") == []
    assert editor.saver.labels("t") == {}


def test_a_thread_is_rolled_back_and_pruned(editor: Editor) -> None:
    browser = editor.browser
    before = editor.ids("t")
    browser.open("/thread?thread=t")
    browser.keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    question = editor.ask("rollback")
    assert before[2] in question
    editor.say(yes=False)
    assert editor.ids("t") == before
    browser.keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    editor.change("rollback")
    assert editor.ids("t") == before[2:]
    assert browser.wait("return document.querySelectorAll('.picture .spot').length") == len(before) - 2
    editor.change("prune")
    assert editor.ids("t") == before[2:3]


@pytest.mark.parametrize("editor", ["", "/checkpoints"], ids=["alone", "mounted"], indirect=True)
def test_an_answer_lets_the_run_go_on_while_one_looks(editor: Editor) -> None:
    browser = editor.browser
    browser.open("/thread?thread=asks")
    assert "Waits for a human" in browser.text("#checkpoint")
    assert editor.ask("answer", "yes").startswith("Answer interrupt")
    editor.say(yes=True)
    browser.wait("return document.querySelector('#checkpoint').textContent.includes('on their way')")
    assert editor.graph.get_state(config_of("asks")).values["messages"][-1].content.startswith("Done")
    browser.open("/inbox")
    assert browser.texts(".asked-card") == []
