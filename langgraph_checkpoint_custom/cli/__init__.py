"""The command line: `lgckpt`, or `python -m langgraph_checkpoint_custom`.

`common.py` has the options that commands share, `output.py` prints. Each other module has a group of commands. Nothing
here knows SQL: what is not a method of the saver is in `operations/`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The arguments after the program's name; those of the process by default.

    Returns:
        The exit code: 0; 1 after an error, or if a command has found a problem; 2 if the arguments or settings are
        invalid, or an extra is missing; 130 after Ctrl-C. An error is one line on stderr.
    """
    try:
        import rich  # noqa: F401  # Imported here so that no command fails for lack of it after it has begun.

        from langgraph_checkpoint_custom.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        print("error: the command line needs an extra: install langgraph-checkpoint-custom[cli]", file=sys.stderr)
        return 2
    return run(sys.argv[1:] if argv is None else argv)
