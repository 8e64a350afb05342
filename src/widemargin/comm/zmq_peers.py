"""Peers that stand on their own, in shells and on machines, writing to each other over ZeroMQ.

Each peer listens at one address and keeps one connection to every neighbour it writes to. Peers of a network share a
secret. From it all derive the same two CURVE key pairs: that of whoever listens, and that of whoever connects. A
stranger knows neither, cannot finish the handshake, and is counted; all traffic is encrypted. Whoever knows the secret
is a member, and members are not told apart: it protects a network from strangers, not members from each other.

Letters are not kept for those who are not there, and a few at most for those who are slow. Besides letters there are
two questions, in JSON: what are the terms of this network, which a newcomer asks before it listens itself; and an
introduction, which a peer writes to a neighbour from which it hears nothing, until it does.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from widemargin.comm.protocol import HIGHEST_NUMBER

_SALT = b"widemargin peers, version 1"
_LEAST_SECRET = 16  # characters; shorter ones can be guessed by trying
_HANDSHAKE = 30_000  # milliseconds
_QUEUE = 16  # letters to one neighbour that wait to be sent
_BATCH = 1000  # messages taken in at a time
_LINKS = 1000  # neighbours that may introduce themselves
_LONGEST_QUESTION = 1 << 20  # bytes
_LETTER, _QUESTION = b"L", b"J"
_SILENT = 1.0  # seconds without a letter, after which a neighbour is told again who this is
_FLUSH = 300  # milliseconds for the last letters
_TURN = 100  # milliseconds of waiting for someone to let in, between looks at whether it is all over
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")
_EVERYWHERE = {"0.0.0.0", "[::]"}
_AT_THE_DOOR = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class Keys(NamedTuple):
    """Of those who listen and those who connect, in the text form of ZeroMQ."""

    listener_public: bytes
    listener_secret: bytes
    caller_public: bytes
    caller_secret: bytes

    @classmethod
    def of(cls, secret: str) -> Keys:
        """The keys of all who know a secret."""
        if len(secret) < _LEAST_SECRET:
            raise ValueError(f"The secret has {len(secret)} characters; it must have at least {_LEAST_SECRET}.")
        derived = hashlib.scrypt(secret.encode(), salt=_SALT, n=1 << 14, r=8, p=1, maxmem=1 << 26, dklen=64)
        pairs = []
        for half in (derived[:32], derived[32:]):
            private = z85.encode(half)
            pairs += [zmq.curve_public(private), private]
        return cls(*pairs)


class Welcome(NamedTuple):
    """What a member tells a newcomer."""

    number: int  # of the member
    terms: dict[str, Any]
    life: int  # that the newcomer's number has not used yet
    peers: dict[int, str]  # members and their addresses, the one asked among them


def check_address(text: str) -> str:
    """An address of the form HOST:PORT; anything else is an error."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) > 65535 or not _is_host(match[1]):
        raise ValueError(f"{text!r} is no address: it must be HOST:PORT, with a port up to 65535.")
    return text


def _is_host(text: str) -> bool:
    """Whether a name may be one; in brackets, an address of IPv6."""
    if text[0] != "[":
        return True
    try:
        ipaddress.IPv6Address(text[1:-1])
    except ValueError:
        return False
    return True


def _check_foreign(text: str) -> str:
    """An address at which someone else may be: port 0 is none."""
    if int(check_address(text).rsplit(":", 1)[1]) == 0:
        raise ValueError(f"{text!r} is no address of another peer: its port is 0.")
    return text


def ask(address: str, keys: Keys, number: int, timeout: float) -> Welcome:
    """The terms of the network of which a member listens at ``address``."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        _secure_caller(socket, keys)
        socket.maxmsgsize = _LONGEST_QUESTION
        _connect(socket, address)
        socket.send(_QUESTION + json.dumps({"ask": "terms", "number": number}).encode())
        if not socket.poll(round(1000 * timeout)):
            raise ValueError(f"Nobody answers at {address}: is a peer there, and does it have the same secret?")
        answer = _parsed(socket.recv())
    try:
        peers = {int(each): _check_foreign(where) for each, where in answer["peers"]}
        peers.pop(number, None)  # itself, in an earlier life
        return Welcome(int(answer["number"]), dict(answer["terms"]), int(answer["life"]), peers)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"The peer at {address} gives an answer that this version does not understand.") from error


class ZmqPeers:
    """The transport of one peer."""

    def __init__(self, number: int, listen: str, keys: Keys, limit_bytes: int, advertise: str | None = None) -> None:
        self.number, self.refused = number, 0
        self._keys, self._limit = keys, 2 * limit_bytes  # what is longer does not come in, and ends its connection
        self._answer: Callable[[int], dict[str, Any]] | None = None
        self._links: dict[int, zmq.Socket] = {}
        self._addresses: dict[int, str] = {}
        self._newcomers: list[int] = []
        self._heard: dict[int, float] = {}
        self._introduced: dict[int, float] = {}
        self._gone: set[int] = set()
        self._knocking: dict[Any, None] = {}  # connections under way, in their order
        self._is_closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep_gate, name="widemargin-gate", daemon=True)
        self._context = zmq.Context()
        self._context.linger = _FLUSH
        try:
            self.address = self._listen_at(check_address(listen), advertise)
        except BaseException:
            self._context.destroy()
            raise
        self._keeper.start()

    def _listen_at(self, listen: str, advertise: str | None) -> str:
        host, port = listen.rsplit(":", 1)
        if host in _EVERYWHERE and advertise is None:
            raise ValueError(f"A peer that listens at {listen} must be told how others reach it: give an address.")
        # Who may connect is asked here, in this process; and answered while a tick is under way, however long it is.
        self._gate = self._context.socket(zmq.REP)
        self._gate.bind("inproc://zeromq.zap.01")
        self._door = self._context.socket(zmq.ROUTER)
        self._door.ipv6 = True
        self._door.curve_server = True
        self._door.curve_secretkey, self._door.curve_publickey = self._keys.listener_secret, self._keys.listener_public
        self._door.zap_domain = b"widemargin"
        self._door.maxmsgsize = self._limit
        self._door.router_handover = True  # a peer that comes back has the name it had
        self._door.handshake_ivl = _HANDSHAKE
        self._door.heartbeat_ivl, self._door.heartbeat_timeout = 2000, 10000
        self._monitor = self._door.get_monitor_socket(_AT_THE_DOOR)
        try:
            self._door.bind(f"tcp://{host}:{'*' if port == '0' else port}")
        except zmq.ZMQError as error:
            raise ValueError(f"Cannot listen at {listen}: {error.strerror}.") from error
        self._poller = zmq.Poller()
        for socket in (self._door, self._monitor):
            self._poller.register(socket, zmq.POLLIN)
        at = self._door.getsockopt_string(zmq.LAST_ENDPOINT).rsplit(":", 1)[1]
        return _check_foreign(advertise) if advertise is not None else f"{host}:{at}"

    def host(self, answer: Callable[[int], dict[str, Any]]) -> None:
        """Answer newcomers from now on: ``answer(number)`` gives the terms of the network and a life for a number."""
        self._answer = answer

    def link(self, number: int, address: str) -> None:
        """Write to a peer from now on, at this address."""
        if self._addresses.get(number) == address:
            return
        socket = self._context.socket(zmq.DEALER)
        _secure_caller(socket, self._keys)
        socket.routing_id = b"p" + self.number.to_bytes(8, "big")
        socket.sndhwm, socket.maxmsgsize = _QUEUE, self._limit
        socket.immediate = True  # what cannot be sent now is out of date later
        socket.reconnect_ivl, socket.reconnect_ivl_max = 100, 2000
        socket.heartbeat_ivl, socket.heartbeat_timeout = 2000, 10000
        try:
            _connect(socket, address)
        except BaseException:
            socket.close()
            raise
        if number in self._links:  # which is given up for an address that is one, and no other
            self._links[number].close()
        self._links[number], self._addresses[number] = socket, address

    # -- what the loop of a peer calls -------------------------------------------------------------------------------

    def open(self) -> None:
        """It listens since it was made: newcomers must be told an address."""

    def send(self, to: int, data: bytes) -> None:
        """Write to a peer, if it is there."""
        socket = self._links.get(to)
        if socket is None:
            return
        now = time.monotonic()
        if max(self._heard.get(to, 0.0), self._introduced.get(to, 0.0)) < now - _SILENT:
            card = {"ask": "meet", "number": self.number, "address": self.address}
            if _put(socket, [_QUESTION + json.dumps(card).encode()]):
                self._introduced[to] = now
        (self._gone.discard if _put(socket, [_LETTER + data]) else self._gone.add)(to)

    def receive(self, wait: float) -> list[bytes]:
        """Letters that have come, after ``wait`` seconds at most; questions and strangers are dealt with on the way."""
        letters: list[bytes] = []
        until = time.monotonic() + wait
        while True:
            # A part of a millisecond would be none, and the processor would be kept busy.
            ready = dict(self._poller.poll(max(0, round(1000 * (until - time.monotonic()) + 0.4))))
            if self._monitor in ready:
                self._count_refusals()
            if self._door in ready:
                letters += self._take()
            if letters or time.monotonic() >= until:
                return letters

    def newcomers(self) -> list[int]:
        """Peers that have introduced themselves since this was last asked."""
        there, self._newcomers = self._newcomers, []
        return there

    def gone(self) -> set[int]:
        """Those to whom the last letter could not be sent."""
        return self._gone

    def close(self) -> None:
        """Send what waits, for a moment, and let go."""
        self._is_closing.set()
        self._keeper.join()  # a socket belongs to one thread at a time
        self._door.disable_monitor()
        self._context.destroy(linger=_FLUSH)

    # -- at the door -------------------------------------------------------------------------------------------------

    def _keep_gate(self) -> None:
        while not self._is_closing.is_set():
            if self._gate.poll(_TURN):
                self._judge()

    def _judge(self) -> None:
        """Let in whoever has the key of those who connect (ZeroMQ's authentication protocol, version 1.0)."""
        version, request, _, _, _, mechanism, *credentials = self._gate.recv_multipart()
        is_member = mechanism == b"CURVE" and credentials == [z85.decode(self._keys.caller_public)]
        status = [b"200", b"OK"] if is_member else [b"400", b"unknown key"]
        self._gate.send_multipart([version, request, *status, b"", b""])

    def _count_refusals(self) -> None:
        """Connections that end before their handshake does; which one it is that has done it, is not said."""
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)
            if event["event"] == zmq.EVENT_ACCEPTED:
                self._knocking[event["value"]] = None
            elif event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._knocking.pop(next(iter(self._knocking), None), None)
            elif event["value"] in self._knocking:
                del self._knocking[event["value"]]
                self.refused += 1

    def _take(self) -> list[bytes]:
        letters = []
        for _ in range(_BATCH):
            try:
                name, *frames = self._door.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            kind = frames[0][:1] if len(frames) == 1 else b""
            if kind == _LETTER:
                self._heard[int.from_bytes(name[1:], "big")] = time.monotonic()
                letters.append(frames[0][1:])
            elif kind == _QUESTION:
                try:
                    self._listen_to(name, _parsed(frames[0]))
                except (ValueError, TypeError, KeyError, zmq.ZMQError):
                    self.refused += 1
            else:
                self.refused += 1
        return letters

    def _listen_to(self, name: bytes, question: dict[str, Any]) -> None:
        number = question["number"]
        if type(number) is not int or not 0 <= number < HIGHEST_NUMBER or number == self.number:
            raise ValueError("no number of another peer")
        if question["ask"] == "meet" and (number in self._links or len(self._links) < _LINKS):
            self.link(number, question["address"])
            self._newcomers.append(number)
        elif question["ask"] == "terms" and self._answer is not None:
            peers = [[self.number, self.address], *self._addresses.items()]
            answer = {**self._answer(number), "number": self.number, "peers": peers}
            _put(self._door, [name, _QUESTION + json.dumps(answer).encode()])
        else:
            raise ValueError("no question that can be answered")


def _secure_caller(socket: zmq.Socket, keys: Keys) -> None:
    socket.ipv6 = True
    socket.linger = _FLUSH
    socket.curve_serverkey = keys.listener_public
    socket.curve_secretkey, socket.curve_publickey = keys.caller_secret, keys.caller_public


def _connect(socket: zmq.Socket, address: str) -> None:
    try:
        socket.connect(f"tcp://{_check_foreign(address)}")
    except zmq.ZMQError as error:
        raise ValueError(f"{address!r} is no address that can be reached: {error.strerror}.") from error


def _put(socket: zmq.Socket, frames: list[bytes]) -> bool:
    """Send without waiting; whether it could be."""
    try:
        socket.send_multipart(frames, zmq.NOBLOCK)
    except zmq.ZMQError:
        return False
    return True


def _parsed(frame: bytes) -> dict[str, Any]:
    """The object in a question or an answer; ValueError where there is none."""
    if frame[:1] != _QUESTION or len(frame) > _LONGEST_QUESTION:
        raise ValueError("not a question")
    try:
        value = json.loads(frame[1:])
    except RecursionError as error:
        raise ValueError("too deep") from error
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
