"""All commands of ``widemargin``; each has its own file and imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from widemargin import __version__
from widemargin.cli import (
    compare,
    demo,
    evaluate,
    inspect,
    peer,
    peer_members,
    peer_status,
    predict,
    reproduce,
    train,
    tune,
)

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


def _version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Support vector machines, each answer with a proof of how good it is.

    [bold]Example[/bold]:

      widemargin train rows.csv --output model.wm

      widemargin evaluate model.wm more.csv
    """


for _command in (
    train.train, tune.tune, predict.predict, evaluate.evaluate, inspect.inspect, compare.compare,
    reproduce.reproduce, demo.demo,
):  # fmt: skip
    app.command(no_args_is_help=_command is not demo.demo)(_command)

_peer = typer.Typer(invoke_without_command=True, no_args_is_help=True, rich_markup_mode="rich")
_peer.callback()(peer.peer)
for _of_peer in (peer_members.keygen, peer_members.enroll, peer_members.revoke, peer_members.members):
    _peer.command(no_args_is_help=True)(_of_peer)
_peer.command("status", no_args_is_help=True)(peer_status.peer_status)
app.add_typer(_peer, name="peer")
