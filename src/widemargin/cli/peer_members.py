"""``widemargin peer keygen``, ``enroll``, ``revoke`` and ``members``: who belongs to a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from widemargin.cli._say import columns, console, remark

ListFile = Annotated[Path, typer.Argument(help="The list of members.", show_default=False)]
Organiser = Annotated[Path, typer.Option(help="NAME.key of the organiser, who signs the list.")]


def keygen(
    name: Annotated[str, typer.Argument(help="Name of the owner: letters, digits, '.', '_', '-'.", show_default=False)],
    folder: Annotated[Path, typer.Option(help="Write both files in this folder.")] = Path(),
) -> None:
    """Make an identity: NAME.key, which you keep, and NAME.card, which you send to the organiser.

    [bold]Example[/bold]:

      widemargin peer keygen alice
    """
    from widemargin.comm.identity import Identity
    from widemargin.data.files import write_whole

    identity = Identity.create(name)
    key, card = folder / f"{name}.key", folder / f"{name}.card"
    for path in (key, card):
        if path.exists():
            raise ValueError(f"{path} exists, and is kept: others may know its keys. Choose another name or folder.")
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder}: make it first, or choose another.")
    identity.write(key)
    write_whole(card, (json.dumps(identity.card.content(), indent=1) + "\n").encode())
    typer.echo(f"identity {key}: keep it secret\ncard     {card}: send it to the organiser of your network")


def enroll(
    members: ListFile,
    card: Annotated[Path, typer.Option(help="NAME.card of the new member.")],
    rows: Annotated[float, typer.Option(min=1, help="The largest number of rows (total weight) it may bring.")],
    organiser: Organiser,
    network: Annotated[str | None, typer.Option(help="Name of the network; only for a new list.")] = None,
) -> None:
    """Add a member to the list, and begin the list if there is none.

    Running peers read the new list from their file, and pass it on to the others.

    [bold]Example[/bold]:

      widemargin peer enroll members.json --card alice.card --rows 5000 --organiser org.key --network hospitals
    """
    from widemargin.comm.identity import Card, Identity, check_name
    from widemargin.comm.members import MemberList

    signer = Identity.read(organiser)
    if members.exists():
        if network is not None:
            raise ValueError(
                f"{members} has the list of a network already: leave out --network, which begins a new list."
            )
        known = MemberList.read(members)
    elif network is None:
        raise ValueError(f"There is no list {members}: check the path, or give --network NAME to begin a list.")
    else:
        known = MemberList(check_name(network), signer.card.key)
    changed = known.with_member(Card.read(card), rows, signer)
    changed.write(members)
    number = changed.next_member - 1
    typer.echo(f"{changed.members[number].name} is member {number} of {changed.network}: list {changed.number}")


def revoke(
    members: ListFile,
    name: Annotated[str, typer.Option(help="Name of the member.")],
    organiser: Organiser,
) -> None:
    """Revoke a member: running peers exclude it as soon as the new list reaches them.

    [bold]Example[/bold]:

      widemargin peer revoke members.json --name mallory --organiser org.key
    """
    from widemargin.comm.identity import Identity
    from widemargin.comm.members import MemberList

    changed = MemberList.read(members).without(name, Identity.read(organiser))
    changed.write(members)
    typer.echo(f"{name} is revoked: list {changed.number} of {changed.network}")


def members(members: ListFile) -> None:
    """Check the signatures of a list, and show its members.

    [bold]Example[/bold]:

      widemargin peer members members.json
    """
    from widemargin.comm.members import MemberList

    found = MemberList.read(members)
    rows = [
        (
            str(number),
            each.name,
            f"{each.max_rows:g}",
            "revoked" if each.is_revoked else "member",
            f"{each.card.key.hex()[:16]}...",
        )
        for number, each in sorted(found.members.items())
    ]
    title = f"{found.network}, list {found.number}"
    table = columns(("", "name", "rows at most", "state", "key"), rows, title=title, n_left=2)
    for column in table.columns[3:]:
        column.justify = "left"
    console().print(table)
    remark(f"signed by {found.organiser.hex()}")
