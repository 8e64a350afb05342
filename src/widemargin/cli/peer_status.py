"""``widemargin peer status``: the page of a network of peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def peer_status(
    logs: Annotated[list[Path], typer.Argument(help="Logs that widemargin peer --log wrote; a peer may have several.")],
    output: Annotated[Path, typer.Option(help="Write the page here, as HTML.")] = Path("network.html"),
    title: Annotated[str | None, typer.Option(help="Heading of the page. Default: Network of ... peers.")] = None,
) -> None:
    """Make one page of HTML about a network, from the logs of its peers.

    The page has the state, gap, traffic and neighbours of every peer, and
    all events. It needs no other file.

    [bold]Example[/bold]:

      widemargin peer status peer1.log peer2.log peer3.log --output network.html

    Logs may be copied while their peers run, and from peers that were killed.
    """
    from widemargin.cli._input import check_outputs
    from widemargin.cli._say import console
    from widemargin.reports import network_report

    check_outputs({"the page": output}, *logs)
    network_report(logs, title=title).save(output)
    console().print(f"page saved as {output}", markup=False)
