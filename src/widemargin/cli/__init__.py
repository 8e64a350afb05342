"""The command ``widemargin``."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

_EXTRAS = {"typer": "cli", "rich": "cli", "zmq": "cli,gossip", "matplotlib": "cli,plot", "onnx": "cli,onnx"}


def main() -> None:
    """Run the command. Whatever is wrong is said in a sentence, with the exit code 2."""
    try:
        import typer

        from widemargin.cli.app import app
    except ModuleNotFoundError as error:
        _say_what_is_missing(error)
    usage_error: Any = typer.BadParameter.__mro__[1]  # of click, or of typer's own copy of it
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except usage_error as error:
        _fail(error.format_message())
    except (KeyboardInterrupt, typer.Abort):
        _fail("Interrupted.", 130)
    except BrokenPipeError:  # whoever read the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except ModuleNotFoundError as error:
        _say_what_is_missing(error)
    except (ValueError, OSError, ImportError) as error:
        _fail(_sentence(error))
    except MemoryError:
        _fail("There is not enough memory for this.")
    except Exception as error:
        if os.environ.get("WIDEMARGIN_TRACEBACK"):
            raise
        _fail(
            f"This should not have happened: {type(error).__name__}: {error} (WIDEMARGIN_TRACEBACK=1 shows where; "
            "please tell us)."
        )


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    return str(error)


def _say_what_is_missing(error: ModuleNotFoundError) -> NoReturn:
    extra = _EXTRAS.get((error.name or "").split(".")[0])
    _fail(str(error) if extra is None else f"This command needs {error.name}: pip install 'widemargin[{extra}]'.")


def _fail(sentence: str, code: int = 2) -> NoReturn:
    sys.stderr.write(" ".join(sentence.split()) + "\n")
    raise SystemExit(code) from None
