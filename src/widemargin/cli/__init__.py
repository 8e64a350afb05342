"""The command ``widemargin``."""

from __future__ import annotations

import sys
from typing import Any, NoReturn


def main() -> None:
    """Run the command. Whatever is wrong is said in a sentence, with the exit code 2."""
    try:
        import typer

        from widemargin.cli.peer import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in {"typer", "rich", "zmq"}:
            raise
        _fail(f"This command needs {error.name}: pip install 'widemargin[cli,gossip]'.")
    usage_error: Any = typer.BadParameter.__mro__[1]  # of click, or of typer's own copy of it
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except usage_error as error:
        _fail(error.format_message())
    except typer.Abort:
        _fail("Interrupted before it began.")


def _fail(sentence: str) -> NoReturn:
    sys.stderr.write(sentence + "\n")
    raise SystemExit(2) from None
