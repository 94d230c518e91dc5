"""The values with which LangGraph tests its own serializer, through a graph: what the README counts of them."""

from __future__ import annotations

import os
import sys
from collections import Counter
from importlib.metadata import version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.downloads import suite_of
from tests.needs import need
from tests.table.measuring import SAVERS, _error_of, _fate, _graph, _thread, empty_stores, opened

README = Path(__file__).parents[2] / "README.md"
NUL = {"a_str_nuc", "a_str_ucuc"}
SECRETS = {"my_secret_str", "my_secret_str_v1"}


class _GivenToSerializer(Exception): ...


class _Serializer:
    def __init__(self, **options: Any) -> None: ...

    def dumps_typed(self, value: Any) -> None:
        raise _GivenToSerializer(value)


def _langgraphs_values(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `test_serde_jsonplus` gives to the serializer."""
    source = suite_of(f"langgraph-checkpoint=={version('langgraph-checkpoint')}", folder)
    for package in ("pandas", "dataclasses_json"):  # The file imports them for other tests and for a class decorator.
        if not find_spec(package):
            monkeypatch.setitem(sys.modules, package, MagicMock(dataclass_json=lambda cls: cls))
    spec = spec_from_file_location("langgraphs_values", source / "tests" / "test_jsonplus.py")
    assert spec
    assert spec.loader
    module: Any = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # Where a reader finds the classes.
    spec.loader.exec_module(module)
    module.JsonPlusSerializer = _Serializer
    with pytest.raises(_GivenToSerializer) as given:
        module.test_serde_jsonplus()
    (values,) = given.value.args
    return dict(values)


@pytest.mark.filterwarnings("default")
def test_the_readme_counts_what_returns_of_langgraphs_own_test_values(
    tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("CHECKPOINT_UPSTREAM" in os.environ, "CHECKPOINT_UPSTREAM=1, with which LangGraph's own tests are downloaded")
    values = _langgraphs_values(tmp_path, monkeypatch)
    found: dict[str, dict[str, str]] = {}
    with empty_stores(postgres_dsn, tmp_path) as urls:
        for name, url in urls.items():
            with opened(name, url) as saver:
                graph = _graph(saver, lambda state: {"value": values[state["name"][0]]})
                found[name] = {
                    each: _fate(graph, _thread(n), _error_of(graph, {"name": [each]}, _thread(n)), values[each]).text
                    for n, each in enumerate(values)
                }
    fates = {name: Counter(each.partition(":")[0] for each in found[name].values()) for name in SAVERS}
    assert {each for each, fate in found["official postgres"].items() if fate != "same"} == NUL
    assert {each for each, fate in found["ours postgres"].items() if fate != "same"} == SECRETS
    assert found["ours sqlite"] == found["ours postgres"]
    assert f"the {len(values)} values of LangGraph's own serializer test" in README.read_text("utf-8")
    assert fates["official postgres"] == {"same": len(values) - 2, "**stuck**": 2}
    assert fates["official sqlite"] == {"same": len(values) - 1, "changed": 1}
    assert fates["ours sqlite"] == {"same": len(values) - 2, "refused": 2}
