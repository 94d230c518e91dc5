"""`vacuum`: gives the space of deleted rows back to the file system."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from langgraph_checkpoint_custom.cli.common import Json, NotPossible, Url, Yes, confirm, opened
from langgraph_checkpoint_custom.cli.output import say, size, tell
from langgraph_checkpoint_custom.drivers.sqlite import SqliteDriver

commands = typer.Typer()

# Bytes that SQLite rewrites in a second on a disk of a small server; a question names the time.
PACE = 200_000_000


@commands.command()
def vacuum(yes: Yes = False, url: Url = None, as_json: Json = False) -> None:
    """Rewrite a SQLite file without the space of deleted rows; writes wait meanwhile, reads do not.

    Afterwards a sweep gives the space of what it deletes back, in short steps. It does so without this command in a
    file that this package has created.
    """
    with opened(url) as saver:
        driver = saver.backend.driver
        if not isinstance(driver, SqliteDriver):
            raise NotPossible(
                "vacuum is for SQLite files; PostgreSQL uses the space of deleted rows again by itself, and VACUUM "
                "FULL or pg_repack returns it to the disk"
            )
        path = Path(driver.path)
        before = path.stat().st_size
        confirm(
            f"Rewrite {path} ({size(before)})? Writes wait meanwhile, for about {before / PACE:.1f} seconds, and fail "
            "after their busy_timeout. The disk needs up to twice this space.",
            yes=yes,
        )
        began = time.monotonic()
        driver.vacuum()
        seconds = time.monotonic() - began
    after = path.stat().st_size
    if as_json:
        tell({"bytes_before": before, "bytes_after": after, "seconds": round(seconds, 3)})
    else:
        say(f"The file has {size(after)}, before {size(before)}. Writes waited for {seconds:.1f} seconds.")
