"""Connect peers in shells and on separate machines by ZeroMQ.

Each peer listens at one address, and has one connection to every neighbour that it writes to. CURVE encrypts all
traffic. With a shared secret, whoever knows it is a member: it keeps strangers out, and does not protect members from
each other. With a list of members, each has its own key, and connections identify the sender: nobody speaks for
another, a revoked member is not heard any more, and one that sends too much is cut off.

Messages to an absent peer are dropped, and only a few are queued for a slow one. Other requests are in JSON: a newcomer
asks for the terms of the network before it listens itself; a peer introduces itself to a neighbour that it does not
hear from; it tells neighbours which peers it hears from, so that they can reach each other once it is gone; and it
passes on a new list of members.
"""

import ipaddress
import json
import re
import socket as sockets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import zmq
from zmq.utils.monitor import recv_monitor_message

from widemargin.comm.clock import SteadyClock
from widemargin.comm.contacts import MOST_TOLD, Contacts
from widemargin.comm.members import MAX_LIST_BYTES, MemberList
from widemargin.comm.protocol import HIGHEST_NUMBER
from widemargin.comm.rates import Rates
from widemargin.comm.zmq_keys import Keys

_HANDSHAKE_MS = 30_000
_MAX_QUEUED = 16  # messages to one neighbour
_MAX_UNREAD = 64  # messages of one connection that wait to be read
_MAX_BATCH = 1000  # messages received at a time
_MAX_LINKS = 1000  # neighbours that may introduce themselves
_MAX_REQUEST_BYTES = 2 * MAX_LIST_BYTES
_MESSAGE, _REQUEST = b"L", b"J"  # first byte of a frame
_FLUSH_MS = 300  # for the last messages
_UNACKNOWLEDGED_MS = 10_000  # after which what was sent counts as lost, and the connection too
_POLL_MS = 100  # between checks whether to close
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]{1,64}\]|[A-Za-z0-9_.-]{1,253}):([0-9]{1,5})")
_ADVICE: dict[int | None, str] = {  # if a peer cannot listen
    zmq.EADDRINUSE: "Choose another port; 0 is any free one.",
    zmq.EADDRNOTAVAIL: "Listen at an address of this machine; if others use another address, advertise that one.",
}
_MONITORED = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class Welcome(NamedTuple):
    """A member's answer to a newcomer."""

    number: int  # of the member
    terms: dict[str, Any]
    incarnation: int  # that the newcomer's number has not used yet
    peers: dict[int, str]  # addresses of members, including this one
    tick: int  # that the member has reached


def check_address(text: str) -> str:
    """Return the text if it has the form HOST:PORT; else raise ValueError."""
    match = _ADDRESS.fullmatch(text)
    with suppress(ValueError):
        if match is not None and int(match[2]) <= 65535:
            if match[1][0] == "[":
                ipaddress.IPv6Address(match[1][1:-1])
            return text
    raise ValueError(f"{text!r} is not an address: it must be HOST:PORT, with a port up to 65535.")


def _is_wildcard(host: str, *, is_name_resolved: bool) -> bool:
    """Whether a host means all interfaces, as the system understands it: 0 and 000.0.0.0 are 0.0.0.0."""
    flags = 0 if is_name_resolved else sockets.AI_NUMERICHOST
    try:
        found = sockets.getaddrinfo(host.strip("[]"), None, type=sockets.SOCK_STREAM, flags=flags)
    except (OSError, UnicodeError):  # a name that is not resolved, or cannot be
        return False
    addresses = [ipaddress.ip_address(each[4][0]) for each in found]
    return any(each.is_unspecified or (getattr(each, "ipv4_mapped", None) or each).is_unspecified for each in addresses)


def _check_foreign(text: str) -> str:
    """Return the address of another peer if it names a machine and a port; else raise ValueError.

    The address may come from another peer, so its host name is not looked up here: this could take long.
    """
    host, port = check_address(text).rsplit(":", 1)
    if int(port) == 0:
        raise ValueError(f"{text!r} is not the address of another peer: its port is 0.")
    if _is_wildcard(host, is_name_resolved=False):
        raise ValueError(f"{text!r} is not the address of another peer: it means all interfaces, on any machine.")
    return text


def ask(address: str, keys: Keys, number: int, timeout: float, member: int = -1) -> Welcome:
    """The terms of the network whose member listens at ``address``; ``member`` is its number, if each has its key."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        _secure_caller(socket, keys, member)
        socket.maxmsgsize = _MAX_REQUEST_BYTES
        _connect(socket, address)
        socket.send(_REQUEST + json.dumps({"ask": "terms", "number": number}).encode())
        if not socket.poll(round(1000 * timeout)):
            raise ValueError(f"No peer answers at {address}: check that {_who_must_run(keys, member)}.")
        answer = _parsed(socket.recv())
    try:
        peers = {int(each): _check_foreign(where) for each, where in answer["peers"]}
        peers.pop(number, None)  # its own earlier incarnation
        numbers = int(answer["number"]), dict(answer["terms"]), int(answer["life"])
        return Welcome(*numbers, peers, int(answer["tick"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:  # OverflowError: Infinity, which JSON has here
        raise ValueError(f"This version does not understand the answer of the peer at {address}.") from error


class ZmqPeers:
    """The transport of one peer, which wants to hear from ``degree`` neighbours; ``clock`` may jump."""

    def __init__(
        self,
        number: int,
        listen: str,
        keys: Keys,
        limit_bytes: int,
        advertise: str | None = None,
        degree: int = 3,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.number, self.refused = number, 0
        self._keys, self._limit = keys, 2 * limit_bytes  # a longer message closes its connection
        self._rates, self._offenders = Rates(self._limit), dict[int, str]()
        self._refused_members: set[int] = set()
        self._lists_sent: dict[int, int] = {}  # number of the list that each neighbour was sent last
        self._answer: Callable[[int], dict[str, Any]] | None = None
        self._links: dict[int, zmq.Socket[bytes]] = {}
        self._clock, self._contacts = SteadyClock(clock), Contacts(degree, np.random.default_rng())
        self._newcomers: list[int] = []
        self._gone: set[int] = set()
        self._unauthenticated: dict[Any, None] = {}  # connections before their handshake, in order
        self._is_closing = threading.Event()
        self._authenticator = threading.Thread(target=self._authenticate_all, name="widemargin-zap", daemon=True)
        self._context = zmq.Context()
        self._context.linger = _FLUSH_MS
        try:
            self.address = self._listen_at(check_address(listen), advertise)
        except BaseException:
            self._context.destroy()
            raise
        self._authenticator.start()

    def _listen_at(self, listen: str, advertise: str | None) -> str:
        host, port = listen.rsplit(":", 1)
        if advertise is None and _is_wildcard(host, is_name_resolved=True):
            raise ValueError(f"{listen} is no address for others: say how others reach it, by --advertise HOST:PORT.")
        # ZeroMQ asks this socket who may connect; a thread answers, also during a long tick.
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind("inproc://zeromq.zap.01")
        self._listener = self._context.socket(zmq.ROUTER)
        self._listener.ipv6 = True
        self._listener.curve_server, self._listener.zap_domain = True, b"widemargin"
        self._listener.curve_secretkey = self._keys.listener.secret
        self._listener.curve_publickey = self._keys.listener.public
        self._listener.maxmsgsize = self._limit
        self._listener.router_handover = True  # a peer that returns has the same routing id
        self._listener.handshake_ivl = _HANDSHAKE_MS
        self._listener.rcvhwm = _MAX_UNREAD
        _keep_alive(self._listener)
        self._monitor = self._listener.get_monitor_socket(_MONITORED)
        try:
            self._listener.bind(f"tcp://{host}:{'*' if port == '0' else port}")
        except zmq.ZMQError as error:
            why = str(error.strerror).split(" (addr=")[0]
            raise ValueError(f"Cannot listen at {listen}: {why}. {_ADVICE.get(error.errno, '')}".strip()) from error
        self._poller = zmq.Poller()
        for socket in (self._listener, self._monitor):
            self._poller.register(socket, zmq.POLLIN)
        at = self._listener.getsockopt_string(zmq.LAST_ENDPOINT).rsplit(":", 1)[1]
        return _check_foreign(advertise) if advertise is not None else f"{host}:{at}"

    def host(self, answer: Callable[[int], dict[str, Any]]) -> None:
        """Answer newcomers: ``answer(number)`` gives the terms, the tick, and an incarnation as ``"life"``."""
        self._answer = answer

    def link(self, number: int, address: str) -> None:
        if self._contacts.addresses.get(number) == address:
            return
        socket = self._context.socket(zmq.DEALER)
        try:
            _secure_caller(socket, self._keys, number)
        except ValueError:
            socket.close()
            raise
        if self._keys.membership is None:
            socket.routing_id = b"p" + self.number.to_bytes(8, "big")
        socket.sndhwm, socket.rcvhwm, socket.maxmsgsize = _MAX_QUEUED, 1, _MAX_REQUEST_BYTES  # nothing is read here
        socket.immediate = True  # a message that waits would be stale
        socket.reconnect_ivl, socket.reconnect_ivl_max = 100, 2000
        _keep_alive(socket)
        try:
            _connect(socket, address)
        except BaseException:
            socket.close()
            raise
        if number in self._links:  # replaced only now, when the new address is known to be valid
            self._links[number].close()
        self._links[number], self._contacts.addresses[number] = socket, address

    # -- Transport ---------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Nothing to do: it listens from the start, as newcomers need its address."""

    def send(self, to: int, data: bytes) -> None:
        socket = self._links.get(to)
        if socket is None:
            return
        self._send_list(to, socket)
        now, contacts = self._clock(), self._contacts
        if contacts.is_silent(to, now):
            card = {"ask": "meet", "number": self.number, "address": self.address}
            if _put(socket, [_REQUEST + json.dumps(card).encode()]):
                contacts.note_introduction(to, now)
        elif contacts.is_to_be_told(to, now):
            others = [each for each in contacts.present(now) if each[0] != to][-MOST_TOLD:]
            _put(socket, [_REQUEST + json.dumps({"ask": "know", "number": self.number, "peers": others}).encode()])
        (self._gone.discard if _put(socket, [_MESSAGE + data]) else self._gone.add)(to)

    def receive(self, wait: float) -> list[tuple[int | None, bytes]]:
        """The messages that have come, after at most ``wait`` seconds; requests are answered meanwhile."""
        messages: list[tuple[int | None, bytes]] = []
        until = self._clock() + wait
        while True:
            # Rounded up: a timeout of 0 ms would be a busy loop.
            ready = dict(self._poller.poll(max(0, round(1000 * (until - self._clock()) + 0.4))))
            if self._monitor in ready:
                self._count_refusals()
            if self._listener in ready:
                messages += self._take()
            if messages or self._clock() >= until:
                return messages

    def newcomers(self) -> list[int]:
        """Peers that have introduced themselves since the last call; also one to write to, if too few are heard."""
        found, self._newcomers = self._newcomers, []
        if (other := self._contacts.reach_out(self._clock())) is not None:
            with suppress(ValueError):  # the name of its host may be unknown here
                self.link(*other)
                found.append(other[0])
        return found

    def gone(self) -> set[int]:
        """Neighbours to which the last message could not be sent."""
        return self._gone

    def offenders(self) -> dict[int, str]:
        """Members that sent too much since the last call, with the limit that each exceeded."""
        found, self._offenders = self._offenders, {}
        return found

    def refuse(self, number: int) -> None:
        """Neither hear a member nor write to it from now on."""
        self._refused_members.add(number)
        self.forget(number)

    def forget(self, number: int) -> None:
        """Close the connection to a neighbour that is gone for good, or will introduce itself again."""
        self._contacts.forget(number)
        self._gone.discard(number)
        if number in self._links:
            self._send_list(number, self._links[number])  # a member that is revoked may hear it
            self._links.pop(number).close()
        self._lists_sent.pop(number, None)

    def close(self) -> None:
        """Flush queued messages for a moment, and close."""
        self._is_closing.set()
        self._authenticator.join()  # a socket belongs to one thread at a time
        self._listener.disable_monitor()
        self._context.destroy(linger=_FLUSH_MS)

    def _authenticate_all(self) -> None:
        """Decide which keys may connect (ZeroMQ's authentication protocol, version 1.0)."""
        while not self._is_closing.is_set():
            if self._zap.poll(_POLL_MS):
                version, request, _, _, _, mechanism, *credentials = self._zap.recv_multipart()
                name = self._keys.admits(credentials[0]) if mechanism == b"CURVE" and len(credentials) == 1 else None
                if name is None or (name and not self._may_connect(name)):
                    status = [b"400", b"unknown key, or too many connections", b""]
                else:
                    status = [b"200", b"OK", name.encode()]  # frames of this connection carry the name
                self._zap.send_multipart([version, request, *status, b""])

    def _may_connect(self, member: str) -> bool:
        return int(member) not in self._refused_members and self._rates.may_connect(member, self._clock())

    def _count_refusals(self) -> None:
        """Count connections that end before their handshake; ZeroMQ does not say which one succeeded."""
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)
            if event["event"] == zmq.EVENT_ACCEPTED:
                self._unauthenticated[event["value"]] = None
            elif event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._unauthenticated.pop(next(iter(self._unauthenticated), None), None)
            elif event["value"] in self._unauthenticated:
                del self._unauthenticated[event["value"]]
                self.refused += 1

    def _take(self) -> list[tuple[int | None, bytes]]:
        messages: list[tuple[int | None, bytes]] = []
        for _ in range(_MAX_BATCH):
            try:
                name, *frames = self._listener.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            data = frames[0].bytes if len(frames) == 1 else b""
            sender = self._sender_of(name.bytes, frames[-1] if frames else name)
            n_bytes = sum(map(len, frames))  # of all parts, also where there should be one
            if self._keys.membership is not None and not self._is_allowed(sender, n_bytes, data[:1] == _REQUEST):
                self.refused += 1
            elif data[:1] == _MESSAGE:
                self._contacts.hear(sender, self._clock())
                messages.append((None if self._keys.membership is None else sender, data[1:]))
            elif data[:1] == _REQUEST:
                try:
                    self._answer_request(name.bytes, sender, _parsed(data))
                except (ValueError, TypeError, KeyError, zmq.ZMQError):
                    self.refused += 1
            else:
                self.refused += 1
        return messages

    def _sender_of(self, name: bytes, frame: zmq.Frame) -> int:
        """The sender of a frame: by the key of its connection, or as it states if all share a secret."""
        if self._keys.membership is None:
            return int.from_bytes(name[1:], "big")
        return int(frame.get("User-Id"))

    def _is_allowed(self, member: int, n_bytes: int, is_request: bool) -> bool:
        """Whether the sender is still a member, and has not sent too much."""
        membership = self._keys.membership
        if membership is None or member in self._refused_members or member not in membership.newest.active:
            return False
        if (excess := self._rates.excess(member, n_bytes, self._clock(), is_request=is_request)) is not None:
            self._offenders[member] = excess
            self._refused_members.add(member)
        return excess is None

    def _send_list(self, to: int, socket: zmq.Socket[bytes]) -> None:
        """Send a neighbour the list of members, unless it was sent already."""
        membership = self._keys.membership
        if membership is not None and self._lists_sent.get(to) != membership.newest.number:
            request = {"ask": "members", "number": self.number, "list": membership.newest.text()}
            if _put(socket, [_REQUEST + json.dumps(request).encode()]):
                self._lists_sent[to] = membership.newest.number

    def _answer_request(self, name: bytes, sender: int, request: dict[str, Any]) -> None:
        number, membership = request["number"], self._keys.membership
        if type(number) is not int or not 0 <= number < HIGHEST_NUMBER or number == self.number:
            raise ValueError("not the number of another peer")
        if membership is not None and number != sender:
            raise ValueError("not the number of the member that asks")
        if request["ask"] == "meet" and (number in self._links or len(self._links) < _MAX_LINKS):
            self.link(number, request["address"])
            self._newcomers.append(number)
            self._lists_sent.pop(number, None)  # it may have restarted
        elif request["ask"] == "know" and number in self._links:
            others = [(each, _check_foreign(where)) for each, where in request["peers"][:MOST_TOLD]]
            if any(type(each) is not int or not 0 <= each < HIGHEST_NUMBER for each, _ in others):
                raise ValueError("not the numbers of peers")
            self._contacts.learn([each for each in others if each[0] != self.number], self._clock())
        elif request["ask"] == "members" and membership is not None:
            if (text := str(request["list"])) != membership.newest.text():  # which has many signatures
                membership.take(MemberList.parse(text.encode()))
        elif request["ask"] == "terms" and self._answer is not None:
            peers = [(self.number, self.address), *self._contacts.present(self._clock())]
            answer = {**self._answer(number), "number": self.number, "peers": peers}
            _put(self._listener, [name, _REQUEST + json.dumps(answer).encode()])
        else:
            raise ValueError("unknown request")


def _who_must_run(keys: Keys, member: int) -> str:
    """What must be true for a member to answer."""
    if keys.membership is None:
        return "one runs there, with the same secret"
    return f"{keys.membership.newest.members[member].name} runs there, and that both have the newest list of members"


def _secure_caller(socket: zmq.Socket[bytes], keys: Keys, to: int) -> None:
    socket.ipv6 = True
    socket.linger = _FLUSH_MS
    socket.curve_serverkey = keys.listener_of(to)
    socket.curve_secretkey, socket.curve_publickey = keys.caller.secret, keys.caller.public


def _keep_alive(socket: zmq.Socket[bytes]) -> None:
    """Let TCP notice that the other side is gone.

    ZeroMQ's own heartbeat ends the whole process if a connection is lost while more has come than was read.
    """
    socket.tcp_keepalive, socket.tcp_keepalive_idle, socket.tcp_keepalive_intvl, socket.tcp_keepalive_cnt = 1, 5, 2, 3
    socket.tcp_maxrt = _UNACKNOWLEDGED_MS


def _connect(socket: zmq.Socket[bytes], address: str) -> None:
    try:
        socket.connect(f"tcp://{_check_foreign(address)}")
    except zmq.ZMQError as error:
        raise ValueError(f"{address!r} cannot be reached: {error.strerror}.") from error


def _put(socket: zmq.Socket[bytes], frames: list[bytes]) -> bool:
    try:
        socket.send_multipart(frames, zmq.NOBLOCK)
    except zmq.ZMQError:
        return False
    return True


def _parsed(frame: bytes) -> dict[str, Any]:
    """The JSON object of a request or an answer; ValueError if there is none."""
    if frame[:1] != _REQUEST or len(frame) > _MAX_REQUEST_BYTES:
        raise ValueError("not a request")
    try:
        value = json.loads(frame[1:])
    except RecursionError as error:
        raise ValueError("too deep") from error
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
