"""The command line: `python -m langgraph_checkpoint_custom`, installed as `langgraph-checkpoint`.

Nothing heavy is imported before a command needs it, and LangGraph itself by the demo only.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.errors import CheckpointError, ConfigError
from langgraph_checkpoint_custom.url import open_saver

URL_VARIABLE = "CHECKPOINT_URL"
KEY_VARIABLE = "LANGGRAPH_AES_KEY"  # LangGraph's own.

# psycopg's pool logs each attempt to connect; the error that comes in the end says it once.
_SILENCE = logging.NullHandler()


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The arguments after the program's name; those of the process by default.

    Returns:
        The exit code: 0, 1 for an error of this package (one line on stderr), 130 after Ctrl-C. Arguments that cannot
        be understood end the process with 2, as argparse does it.
    """
    arguments = _parser().parse_args(argv)
    logging.getLogger("psycopg.pool").addHandler(_SILENCE)
    try:
        if arguments.command == "setup":
            _setup(arguments.url)
        elif arguments.command == "demo":
            _demo(arguments.url)
        elif arguments.command == "reencrypt":
            return _reencrypt(arguments.url, arguments.tenant, arguments.key, arguments.old_key, arguments.unencrypted)
        else:
            _worker(arguments.phase, arguments.thread_id, arguments.journal)
    except (CheckpointError, ImportError) as error:  # ImportError: an extra is missing, and the message says which.
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


class _Parser(argparse.ArgumentParser):
    """Says what it cannot understand, but no URL, which may hold a password."""

    def error(self, message: str) -> NoReturn:
        super().error(re.sub(r"\S*(://|=)\S*", "(a URL)", message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="langgraph-checkpoint", description="Checkpoints for LangGraph on PostgreSQL and SQLite.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    text = "kill an agent in the middle of its work and see what the checkpoints are good for; needs no key, no network"
    demo = commands.add_parser("demo", help=text, description=text)
    demo.add_argument("--url", help="the database; by default a new SQLite file in this folder")

    text = "create or migrate the tables; changes nothing if they are current"
    setup = commands.add_parser("setup", help=text, description=text)
    setup.add_argument(
        "--url",
        default=os.environ.get(URL_VARIABLE),
        help=f"sqlite:///checkpoints.db or postgresql://user:password@host/database; by default {URL_VARIABLE}",
    )

    text = "store everything anew with another key, or encrypted for the first time, while runs go on"
    reencrypt = commands.add_parser("reencrypt", help=text, description=text)
    reencrypt.add_argument(
        "--url", default=os.environ.get(URL_VARIABLE), help=f"the database; by default {URL_VARIABLE}"
    )
    reencrypt.add_argument("--tenant", help="only this tenant's threads; by default those that have none")
    reencrypt.add_argument(
        "--key",
        metavar="VARIABLE",
        default=KEY_VARIABLE,
        help=f"the environment variable with the AES key to encrypt with; by default {KEY_VARIABLE}",
    )
    reencrypt.add_argument(
        "--old-key",
        metavar="VARIABLE",
        action="append",
        default=[],
        help="an environment variable with an AES key that rows may be encrypted with; may be given several times",
    )
    reencrypt.add_argument("--unencrypted", action="store_true", help="rows may be without encryption")

    # The demo's child processes. Without a help text it is not listed.
    worker = commands.add_parser("_worker")
    for name in ("phase", "thread_id", "journal"):
        worker.add_argument(name)
    return parser


def _setup(url: str | None) -> None:
    with open_saver(_given(url)) as saver:
        saver.setup()
    print("The tables are ready.")


def _given(url: str | None) -> str:
    if not url:
        raise ConfigError(f"no database is given; use --url or set {URL_VARIABLE}")
    return url


def _reencrypt(url: str | None, tenant: str | None, key: str, old_keys: Sequence[str], unencrypted: bool) -> int:
    previous: list[SerializerProtocol] = [JsonPlusSerializer()] if unencrypted else []
    previous += [_serde(variable) for variable in old_keys]
    with open_saver(_given(url), serde=_serde(key), previous_serdes=previous) as saver:
        rows, renewed, unreadable = (saver if tenant is None else saver.for_tenant(tenant)).reencrypt()
    print(f"{rows:,} rows, of which {renewed:,} were stored anew.")
    for error in unreadable:
        print(f"error: {error}", file=sys.stderr)
    return 1 if unreadable else 0


def _serde(variable: str) -> EncryptedSerializer:
    key = os.environ.get(variable, "").encode()
    if len(key) not in (16, 24, 32):
        raise ConfigError(f"{variable} has no AES key of 16, 24 or 32 bytes, but {len(key)} bytes")
    return EncryptedSerializer.from_pycryptodome_aes(key=key)


def _demo(url: str | None) -> None:
    try:
        from langgraph_checkpoint_custom import demo
    except ModuleNotFoundError as error:
        # `langgraph` itself is there without LangGraph: langgraph-checkpoint brings `langgraph.checkpoint`.
        if not (error.name or "").startswith("langgraph."):
            raise
        raise ConfigError("the demo runs a real graph, which needs LangGraph 1.2: pip install langgraph") from error
    demo.run(url)


def _worker(phase: str, thread_id: str, journal: str) -> None:
    from langgraph_checkpoint_custom import demo

    # The URL does not come as an argument, since the process list would show its password.
    demo.work(phase, os.environ[URL_VARIABLE], thread_id, journal)
