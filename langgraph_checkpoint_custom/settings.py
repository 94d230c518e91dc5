"""What a text says of a saver: a URL, and environment variables for the Agent Server's factory and the command line."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, get_args, get_origin
from urllib.parse import quote, unquote

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from typing_extensions import Unpack

from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.options import OPTIONS, Options
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.sqlite import SqliteSaver


def open_saver(url: str, **options: Unpack[Options]) -> CheckpointSaver:
    """Return the saver for a database URL, or the path of a SQLite file, without connecting yet.

    Args:
        url: `sqlite:///checkpoints.db` (relative path), `sqlite:////var/lib/app/checkpoints.db` (absolute path),
            `sqlite:///:memory:`, or `postgresql://user:password@host/database`. A path has a slash or ends with `.db`,
            `.sqlite` or `.sqlite3`, or the file exists.
        options: The options of `SqliteSaver` or `PostgresSaver`.

    Raises:
        ConfigError: The URL does not name a database that this package supports.
    """
    if not isinstance(url, str):
        raise ConfigError(f"a database URL is text, not {type(url).__name__}; for a path use SqliteSaver")
    url = url_of(url)
    scheme, colon, _ = url.partition(":")
    scheme = scheme.lower()
    if scheme == "sqlite":
        rest = url[len("sqlite:") :]
        if not rest.startswith("///"):
            raise ConfigError("a SQLite URL has three slashes before a relative path: sqlite:///checkpoints.db")
        if "?" in rest:
            raise ConfigError(
                "a sqlite:/// URL has no options; give them to open_saver, and write %3F for a question mark"
            )
        return SqliteSaver(unquote(rest[3:]), **options)  # type: ignore[misc]  # It raises for others.
    if scheme.partition("+")[0] in ("postgresql", "postgres"):
        from langgraph_checkpoint_custom.postgres import PostgresSaver

        return PostgresSaver.from_conn_string(url, **options)  # type: ignore[misc]
    # Without a scheme it may be a connection string with a password.
    known = colon and re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme)
    what = f"a URL that starts with {scheme!r}" if known else "a text that is not a URL"
    raise ConfigError(f"no database is known for {what}; use sqlite:/// or postgresql://")


def url_of(text: str) -> str:
    """Return the URL for the path of a SQLite file; return a URL as it is.

    A name such as "localhost" is not taken for a file that could be created: the file exists, or its name has a slash
    or the usual ending.
    """
    if re.search(r"[\ud800-\udfff]", text):  # How Python has the bytes of an argument or variable that are not UTF-8.
        raise ConfigError("the URL or path of a database must be UTF-8, and this one is not")
    # `host=a` may begin a connection string of PostgreSQL, with a password in it; `a=b.db` names a file.
    is_conninfo = re.match(r"\s*((host|dbname|user|password|service)\s*=|\w+\s*=(?!\S*\.(db|sqlite3?)\Z))", text)
    is_path = not is_conninfo and ("/" in text or text.endswith((".db", ".sqlite", ".sqlite3")))
    return f"sqlite:///{quote(text)}" if ":" not in text and (is_path or os.path.isfile(text)) else text


# Environment variables

URL = "CHECKPOINT_URL"
DEFAULT_URL = "sqlite:///checkpoints.db"
STRICT = "CHECKPOINT_STRICT"
ALLOW = "CHECKPOINT_ALLOW"
KEYS = "CHECKPOINT_ENCRYPTION_KEYS"
SCHEMA = "CHECKPOINT_SCHEMA"
SERVERS_KEY = "LANGGRAPH_AES_KEY"  # The Agent Server encrypts its own store with it.
UNENCRYPTED = "unencrypted"
_Readers = Mapping[str, tuple[str, Callable[[str, str], Any]]]


class Settings(NamedTuple):
    """The settings in the environment, without the keys themselves."""

    url: str
    options: tuple[tuple[str, Any], ...]
    strict: bool
    allow: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    """The variables that contain the keys; the first one encrypts. `unencrypted` stands for no key."""

    def all_options(self) -> dict[str, Any]:
        """The options of `open_saver`, including the serializers with the keys."""
        serdes = [
            key_serde(name, f"{KEYS} must list names of variables that contain keys, and the variable of name {number}")
            for number, name in enumerate(self.keys, 1)
        ]
        return {
            **dict(self.options),
            "serde": serdes[0] if serdes else None,
            "previous_serdes": serdes[1:],
            "strict": self.strict,
            "allow": self.allow,
        }


# An empty variable counts as not set, except for KEYS: an empty variable must not turn encryption off.


def settings_of(environment: Mapping[str, str], url: str | None = None) -> Settings:
    """Read the settings from environment variables.

    Args:
        environment: The environment of the process.
        url: The URL of a database that was named in another way. Variables for databases of the other kind are then
            ignored.

    Raises:
        ConfigError: A variable cannot be used; the message names the variable.
    """
    given = {name: text.strip() for name, text in environment.items() if text.strip()}
    named_otherwise = url is not None
    url = url_of(url or given.get(URL, DEFAULT_URL))
    ours, theirs, database = _POSTGRES, _SQLITE, "SQLite"
    if url.lower().startswith("sqlite:"):
        ours, theirs, database = _SQLITE, _POSTGRES, "PostgreSQL"
    for name in sorted(theirs.keys() - ours.keys()):
        if name in given and not named_otherwise:
            named = "names another database" if URL in given else f"is not set, which means {DEFAULT_URL}"
            raise ConfigError(f"{name} is for {database}, but {URL} {named}; set that, or unset {name}")
    for name in sorted(given.keys() - _KNOWN):
        meant = get_close_matches(name.removeprefix(_PREFIX), _SUFFIXES, 1, 0.8) if name.startswith(_PREFIX) else ()
        if meant:
            raise ConfigError(f"{name} is not a setting; did you mean {_PREFIX}{meant[0]}? Set that, or unset {name}")
    strict = STRICT in given and _yes_or_no(STRICT, given[STRICT])
    if ALLOW in given and not strict:
        raise ConfigError(f"without {STRICT}=true everything is allowed; {ALLOW} needs {STRICT}=true")
    return Settings(
        url,
        tuple((option, read(name, given[name])) for name, (option, read) in ours.items() if name in given),
        strict,
        tuple(map(_class, _names(ALLOW, given[ALLOW]))) if ALLOW in given else (),
        _key_names(environment),
    )


def _key_names(environment: Mapping[str, str]) -> tuple[str, ...]:
    if KEYS not in environment:
        return (SERVERS_KEY,) if environment.get(SERVERS_KEY) else ()
    names = _names(KEYS, environment[KEYS])
    if names[0] == UNENCRYPTED:
        raise ConfigError(f"the first name in {KEYS} must be that of the key to encrypt with, not {UNENCRYPTED!r}")
    return names


def key_serde(name: str, named: str) -> SerializerProtocol:
    """The serializer for the key in a variable; an error has `named` instead of its name, which may be a key."""
    if name == UNENCRYPTED:
        return JsonPlusSerializer()
    key = os.environ.get(name, "").encode()
    if not key:
        raise ConfigError(f"{named} is not set")
    if len(key) not in (16, 24, 32):
        raise ConfigError(f"{name} must contain an AES key of 16, 24 or 32 bytes, not {len(key)} bytes")
    return EncryptedSerializer.from_pycryptodome_aes(JsonPlusSerializer(), key=key)


def _text(name: str, text: str) -> str:
    return text


def _one_of(*words: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        for word in words:
            if text.lower() == word.lower():
                return word
        raise ConfigError(f"{name} must be one of {', '.join(words)}, not {text!r}")

    return read


def _whole_number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name} must be a whole number, not {text!r}") from None


def _seconds(name: str, text: str) -> float:
    with suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise ConfigError(f"{name} must be a number of seconds, not {text!r}")


def _yes_or_no(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{name} must be true or false, not {text!r}")
    return text.lower() == "true"


def _names(name: str, text: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in text.split(","))
    if not all(names):  # The message omits the text: it may be a key in the wrong place.
        raise ConfigError(f"{name} must be a comma-separated list of names, and one of them is empty")
    return names


def _class(path: str) -> tuple[str, str]:
    module, _, name = path.rpartition(".")
    if not module or not all(part.isidentifier() for part in path.split(".")):
        raise ConfigError(f"{ALLOW} must be a list of classes such as my_app.state.Plan, and {path!r} is not a class")
    return module, name


# How the text of a variable becomes an option of this type. Options of other types have no variable.
_BY_TYPE: Mapping[Any, Callable[[str, str], Any]] = {
    str: _text,
    int: _whole_number,
    float: _seconds,
    bool: _yes_or_no,
    bool | None: _yes_or_no,
    Sequence[str]: _names,
}
_PREFIX = "CHECKPOINT_"


def _readers(options: Mapping[str, Any]) -> _Readers:
    """The variables of options, each with its option and what reads its text."""
    found = {}
    for name, kind in options.items():
        read = _one_of(*get_args(kind)) if get_origin(kind) is Literal else _BY_TYPE.get(kind)
        if read and name not in ("strict", "read_only"):  # The former is read apart; a server does not only read.
            found[f"{_PREFIX}{name.upper()}"] = name, read
    return found


_SQLITE, _POSTGRES = _readers(OPTIONS["SqliteSaver"]), _readers(OPTIONS["PostgresSaver"])
# A name that is almost one of these is an error: a misspelled variable must not turn off strict mode or encryption.
_KNOWN = frozenset({URL, STRICT, ALLOW, KEYS, *_SQLITE, *_POSTGRES})
_SUFFIXES = tuple(name.removeprefix(_PREFIX) for name in sorted(_KNOWN))
