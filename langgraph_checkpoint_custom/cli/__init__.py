"""The command line: `langgraph-checkpoint`, or `python -m langgraph_checkpoint_custom`.

`common.py` has the options that commands share, `output.py` how they speak; each other module has a group of commands.
Nothing here knows SQL: what is not a method of the saver is in `operations/`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The arguments after the program's name; those of the process by default.

    Returns:
        The exit code: 0; 1 for an error, one line on stderr, or a problem that was found; 2 for arguments that cannot
        be understood, and without the extra `cli`; 130 after Ctrl-C.
    """
    try:
        import rich  # noqa: F401  # Some commands need it in the middle of their work.

        from langgraph_checkpoint_custom.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        print("error: the command line needs an extra: pip install 'langgraph-checkpoint-custom[cli]'", file=sys.stderr)
        return 2
    return run(sys.argv[1:] if argv is None else argv)
