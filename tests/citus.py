"""Databases on a Citus cluster, for `python -m pytest --citus`.

CHECKPOINT_CITUS_DSN is the address of the coordinator, for a superuser. The servers know each other by what
`citus_get_active_worker_nodes()` returns there, in the database that the address names; the tests have to reach them by
that, too.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from typing_extensions import LiteralString

from langgraph_checkpoint_custom import PostgresSaver

DSN = "CHECKPOINT_CITUS_DSN"
# Background workers that each server may have: Citus has one in each database, which finds deadlocks and commits what
# lost servers have left, and a shard that moves needs another one. Without a free one these wait, a move for two hours.
WORKERS = 32
# Tests of the command line remove such variables.
_GIVEN = os.environ.get(DSN)


def given_dsn() -> str | None:
    """The address of the coordinator, if there is a cluster."""
    return _GIVEN


def as_url(dsn: str, **changes: Any) -> str:
    """A DSN with changes, as a URL."""
    parts: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(dsn) | changes
    user, password, name = (str(parts.pop(part, "")) for part in ("user", "password", "dbname"))
    account = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    return f"postgresql://{account}@/{name}?{urlencode(parts, quote_via=quote)}"


def servers(dsn: str) -> Sequence[str]:
    """The addresses of the coordinator and of its workers."""
    with psycopg.connect(dsn) as server:
        workers = server.execute("SELECT * FROM citus_get_active_worker_nodes()").fetchall()
    return [as_url(dsn), *(as_url(dsn, host=host, port=port) for host, port in sorted(workers))]


@contextmanager
def made_cluster_database(dsn: str) -> Iterator[Sequence[str]]:
    """A new database on all servers: its addresses, the coordinator's first. At the end it is dropped."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    old = servers(dsn)
    urls = [as_url(url, dbname=name) for url in old]
    try:
        for url, made in zip(old, urls, strict=True):
            with psycopg.connect(url, autocommit=True) as server:
                workers = int((server.execute("SHOW max_worker_processes").fetchone() or "0")[0])
                assert workers >= WORKERS, f"{url}: set max_worker_processes to {WORKERS} or more; it is {workers}"
                server.execute("SET citus.enable_create_database_propagation = off")
                # Otherwise two processes could not copy template1 at the same time.
                server.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
            with psycopg.connect(made, autocommit=True) as server:
                server.execute("CREATE EXTENSION citus")
        places = [psycopg.conninfo.conninfo_to_dict(url) for url in urls]
        with psycopg.connect(old[0]) as guard, psycopg.connect(urls[0], autocommit=True) as server:
            # Citus copies roles to a server that is added, and two processes cannot change a role at the same time.
            guard.execute("SELECT pg_advisory_xact_lock(hashtext('tests add servers'))")
            for number, place in enumerate(places):
                add = "citus_add_node" if number else "citus_set_coordinator_host"
                server.execute(
                    sql.SQL("SELECT {}(%s, %s::integer)").format(sql.Identifier(add)),
                    (str(place.get("host", "localhost")), str(place.get("port", 5432))),
                )
        yield urls
    finally:
        for url in old:
            with psycopg.connect(url, autocommit=True) as server:
                server.execute("SET citus.enable_create_database_propagation = off")
                with suppress(psycopg.errors.ObjectInUse):
                    server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def end_sessions(urls: Sequence[str]) -> None:
    """End all sessions of clients in a database, and reset its settings for those that follow."""
    for url in urls:
        with psycopg.connect(url, autocommit=True) as server:
            if url == urls[0]:  # The coordinator resets them on all servers.
                server.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(sql.Identifier(server.info.dbname)))
            server.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
                " AND application_name NOT LIKE 'citus%'"
            )


def activity(server: psycopg.Connection[Any]) -> LiteralString:
    """The view with the sessions of a database: on a cluster, those on all servers."""
    is_cluster = server.execute("SELECT to_regclass('citus_stat_activity')").fetchone() != (None,)
    return "citus_stat_activity" if is_cluster else "pg_stat_activity"


def emptied(urls: Sequence[str]) -> None:
    """Drop all schemas and tables of a database that Citus did not make, and reset its settings."""
    end_sessions(urls)
    with psycopg.connect(urls[0], autocommit=True) as server:
        schemas = server.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname NOT LIKE 'citus%'"
            " AND nspname NOT IN ('information_schema', 'public', 'columnar', 'columnar_internal')"
        ).fetchall()
        for (name,) in schemas:
            server.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))
        # Those of LangGraph's own saver.
        tables = server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (name,) in tables:
            server.execute(sql.SQL("DROP TABLE public.{} CASCADE").format(sql.Identifier(name)))


def distributed(url: str) -> None:
    """Create distributed tables, with few shards, which are created and emptied faster."""
    with PostgresSaver(as_url(url, options="-c citus.shard_count=4")) as saver:
        saver.setup(distribute="citus")
