"""A server that speaks OpenAI's protocol on loopback and plays a script.

    with LlmServer([Reply(text="hello"), Reply.limited(after="1"), Reply.hanging()]) as server:
        ... ask server.base_url ...
        assert server.requests[0].json["model"] == "m"

A script is a list of replies, played in order, or a function from a request's JSON to a reply, for conversations. A
reply is sent as a stream where the request wants that, else whole. What was asked is in `requests`.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PIECES = 5
"""A text is streamed in so many pieces, or a piece each 16 KiB if that is more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the server does with one request."""

    text: str = ""
    finish: str = "stop"
    model: str | None = None
    """The model that it says it is; None: the one that was asked for."""
    refusal: str | None = None
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    usage: Mapping[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    )
    """None: none is told."""
    thought: str = ""
    """Streamed before the text."""
    counts: bool = False
    """Whether each piece of a stream has the usage so far."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Sent instead of an answer, as it is."""
    content_type: str | None = None
    """None: what fits."""
    error: object = None
    """An error object, sent instead of an answer; in a stream as an event, after the text, if `status` is 200."""
    echo_key: bool = False
    """Whether the error's message gets the key that came with the request."""
    hang_s: float = 0.0
    """Before anything is sent; ends early when the server closes."""
    stall_s: float = 0.0
    """In the middle of the answer, likewise."""
    reset: bool = False
    """Whether the connection is broken in the middle of the answer."""
    cut: bool = False
    """Whether the answer ends in its middle, in good order."""
    no_stream: bool = False
    """Whether it is sent whole even if a stream is asked for."""

    @staticmethod
    def failing(status: int, message: str = "something broke", **headers: str) -> Reply:
        """An error with a status."""
        return Reply(
            status=status,
            headers={k.replace("_", "-"): v for k, v in headers.items()},
            error={"message": message},
        )

    @staticmethod
    def limited(after: str | None = None) -> Reply:
        """429, with `Retry-After` if that is given."""
        return Reply.failing(429, "slow down", **({"Retry_After": after} if after is not None else {}))

    @staticmethod
    def hanging(hang_s: float = 600.0) -> Reply:
        """Nothing for a long time."""
        return Reply(hang_s=hang_s, text="too late")

    @staticmethod
    def refusing(words: str = "I cannot help with that.") -> Reply:
        """A refusal."""
        return Reply(refusal=words)

    @staticmethod
    def calling(name: str = "write_file", arguments: str = '{"path": "x"}') -> Reply:
        """A call of a tool that nobody offered."""
        call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
        return Reply(tool_calls=(call,), finish="tool_calls")

    @staticmethod
    def page(status: int = 200) -> Reply:
        """A web page."""
        return Reply(
            status=status,
            body=b"<html><head><style>p{}</style></head><body><p>Welcome to the portal</p></body></html>",
            content_type="text/html; charset=utf-8",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that came."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    json: Any
    """None without a body."""


Script = Sequence[Reply] | Callable[[Any], Reply]


class LlmServer:
    """A server that plays a script; a context manager."""

    def __init__(
        self, script: Script = (), *, models: Sequence[str] = ("tiny-1", "tiny-2"), lists_models: bool = True
    ) -> None:
        self._script = script
        self._models = list(models)
        self._lists_models = lists_models
        self._lock = threading.Lock()
        self.requests: list[Asked] = []
        self.moved_to = ""
        """Where what is asked without a body is sent on to; "" for nowhere."""
        self.closing = threading.Event()
        self.arrived = threading.Condition()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def asked(self) -> list[Any]:
        """JSON of the requests for answers, in the order in which they came."""
        return [one.json for one in self.requests if one.path.endswith("/chat/completions")]

    def wait_for(self, count: int, timeout_s: float = 20.0) -> None:
        """Until so many requests for answers have come."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.asked) >= count, timeout_s), "nobody asked"

    def __enter__(self) -> LlmServer:
        server = self

        class Handler(_Handler):
            owner = server

        self._http = _Http(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()

    def _next(self, asked: Asked) -> Reply:
        with self._lock:
            self.requests.append(asked)
            number = len(self.asked) - 1
        with self.arrived:
            self.arrived.notify_all()
        if callable(self._script):
            return self._script(asked.json)
        if number < len(self._script):
            return self._script[number]
        return Reply.failing(400, "the script has come to its end")


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """Clients that go away are part of the play."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: LlmServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        asked = self._asked(None)
        with self.owner._lock:
            self.owner.requests.append(asked)
        if self.owner.moved_to:
            return self._send(307, b"", "text/plain", Reply(headers={"Location": self.owner.moved_to}))
        if self.path.endswith("/models") and self.owner._lists_models:
            data = [
                {"id": name, "object": "model", "created": 0, "owned_by": "me"} for name in self.owner._models
            ]
            return self._send(200, json.dumps({"object": "list", "data": data}).encode(), "application/json")
        return self._send(404, b"404 page not found", "text/plain")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.path.endswith("/chat/completions"):
            return self._send(404, b"404 page not found", "text/plain")
        asked = self._asked(json.loads(body))
        reply = self.owner._next(asked)
        if reply.hang_s and self.owner.closing.wait(reply.hang_s):
            return self._reset()
        streamed = bool(asked.json.get("stream")) and not reply.no_stream
        if reply.body is not None:
            return self._send(reply.status, reply.body, reply.content_type or "application/json", reply)
        if reply.error is not None and not (streamed and reply.status == 200):
            return self._send(
                reply.status,
                json.dumps({"error": self._error(reply, asked)}).encode(),
                "application/json",
                reply,
            )
        if streamed:
            return self._stream(reply, asked)
        return self._whole(reply, asked)

    def _asked(self, data: Any) -> Asked:
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Asked(method=self.command, path=self.path, headers=headers, json=data)

    def _error(self, reply: Reply, asked: Asked) -> object:
        if reply.echo_key and isinstance(reply.error, dict):
            key = asked.headers.get("authorization", "").removeprefix("Bearer ")
            return {**reply.error, "message": f"{reply.error['message']}: {key}"}
        return reply.error

    def _head(self, status: int, kind: str, nbytes: int | None, reply: Reply | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if nbytes is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(nbytes))
        for name, value in (reply.headers if reply else {}).items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, status: int, body: bytes, kind: str, reply: Reply | None = None) -> None:
        self._head(status, kind, len(body), reply)
        self.wfile.write(body)

    def _whole(self, reply: Reply, asked: Asked) -> None:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": reply.text or None,
            "refusal": reply.refusal,
        }
        if reply.tool_calls:
            message["tool_calls"] = reply.tool_calls
        data = self._base(reply, asked, "chat.completion")
        data["choices"] = [{"index": 0, "message": message, "finish_reason": reply.finish}]
        if reply.usage is not None:
            data["usage"] = reply.usage
        body = json.dumps(data).encode()
        half = len(body) // 2
        if reply.cut:
            return self._send(200, body[:half], "application/json", reply)
        self._head(200, "application/json", len(body), reply)
        self.wfile.write(body[:half])
        if (reply.stall_s and self.owner.closing.wait(reply.stall_s)) or reply.reset:
            return self._reset()
        self.wfile.write(body[half:])
        return None

    def _stream(self, reply: Reply, asked: Asked) -> None:
        self._head(200, reply.content_type or "text/event-stream; charset=utf-8", None, reply)
        base = self._base(reply, asked, "chat.completion.chunk")
        if reply.counts:
            base["usage"] = reply.usage
        deltas = [{"role": "assistant", "content": ""}, *self._deltas(reply)]
        for number, delta in enumerate(deltas):
            if number == (len(deltas) + 1) // 2 and (reply.stall_s or reply.reset or reply.cut):
                if (reply.stall_s and self.owner.closing.wait(reply.stall_s)) or reply.reset:
                    return self._reset()
                if reply.cut:
                    return self._chunk(b"")
            self._event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        if reply.error is not None:
            self._event({"error": self._error(reply, asked)})
            return self._chunk(b"")
        self._event({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish}]})
        if reply.usage is not None and asked.json.get("stream_options", {}).get("include_usage"):
            self._event({**base, "choices": [], "usage": reply.usage})
        self._chunk(b"data: [DONE]\n\n")
        return self._chunk(b"")

    def _deltas(self, reply: Reply) -> list[dict[str, Any]]:
        deltas: list[dict[str, Any]] = []
        for name, text in (("reasoning_content", reply.thought), ("content", reply.text)):
            size = max(1, min(2**14, -(-len(text) // PIECES)))
            deltas += [{name: text[start : start + size]} for start in range(0, len(text), size)]
        if reply.refusal:
            half = len(reply.refusal) // 2
            deltas += [{"refusal": reply.refusal[:half]}, {"refusal": reply.refusal[half:]}]
        return deltas + [{"tool_calls": [{"index": n, **call}]} for n, call in enumerate(reply.tool_calls)]

    def _base(self, reply: Reply, asked: Asked, kind: str) -> dict[str, Any]:
        return {"id": "x", "object": kind, "created": 0, "model": reply.model or asked.json.get("model")}

    def _event(self, data: object) -> None:
        self._chunk(f"data: {json.dumps(data)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _reset(self) -> None:
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True
