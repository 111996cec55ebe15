#!/usr/bin/python3
"""A small service that depends on PostgreSQL: GET /health, numbers for Prometheus (GET /metrics), and an MCP server with sessions of which it has few (POST /mcp).

What a service of its kind does: it keeps a connection to its database, says 503 with a reason while there is none, and
connects anew by itself. A session holds one of its places until it is ended, or its client has gone.
"""

import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg2

ADDRESS = ("127.0.0.1", 8080)
# A database that does not answer is given up after six seconds, be it while connecting or while it is asked: on an emulated processor
# that is busy it takes two to start a session.
DATABASE = "host=127.0.0.1 dbname=shop user=shop password=shop connect_timeout=6 tcp_user_timeout=6000"
PLACES = 4
# How long the place of a session is kept after its client has closed its connection.
GRACE = 2.0


# Nobody waits in line for what has failed so long ago.
KNOWN_TO_BE_GONE = 0.5


class Database:
    def __init__(self):
        self.lock = threading.Lock()
        self.connection = None
        self.gone_until = 0.0

    def price(self):
        """Asks; connects first if there is no connection."""
        with self.lock:
            if time.monotonic() < self.gone_until:
                raise psycopg2.OperationalError("it could not be reached a moment ago")
            try:
                if self.connection is None:
                    self.connection = psycopg2.connect(DATABASE)
                    self.connection.autocommit = True
                with self.connection.cursor() as cursor:
                    cursor.execute("select price from goods where name = 'tea'")
                    return cursor.fetchone()[0]
            except psycopg2.Error:
                self.connection = None
                self.gone_until = time.monotonic() + KNOWN_TO_BE_GONE
                raise


class Sessions:
    """By id: when the place is free again, or None while the client is connected."""

    def __init__(self):
        self.lock = threading.Lock()
        self.all = {}

    def free(self):
        """How many places nobody has; with the lock held."""
        now = time.monotonic()
        self.all = {name: end for name, end in self.all.items() if end is None or end > now}
        return PLACES - len(self.all)

    def open(self):
        with self.lock:
            if self.free() == 0:
                return None
            name = uuid.uuid4().hex
            self.all[name] = None
            return name

    def use(self, name):
        with self.lock:
            if name not in self.all:
                return False
            self.all[name] = None
            return True

    def leave(self, name, after=0.0):
        with self.lock:
            if name in self.all:
                self.all[name] = time.monotonic() + after


database = Database()
sessions = Sessions()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.session = None

    def finish(self):
        if self.session is not None:
            sessions.leave(self.session, GRACE)
        super().finish()

    def answer(self, status, body=None, session=None):
        is_text = isinstance(body, str)
        text = b"" if body is None else (body if is_text else json.dumps(body)).encode()
        self.send_response(status)
        if text:
            self.send_header("Content-Type", "text/plain; version=0.0.4" if is_text else "application/json")
        if session is not None:
            self.send_header("Mcp-Session-Id", session)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        if self.path not in ("/health", "/metrics"):
            return self.answer(405)
        with sessions.lock:
            free = sessions.free()
        if self.path == "/metrics":
            return self.answer(200, f"shop_free_places {free}\n")
        try:
            database.price()
        except psycopg2.Error as error:
            return self.answer(503, {"status": "down", "reason": "database_unreachable", "error": str(error)})
        self.answer(200, {"status": "up", "free_places": free})

    def do_DELETE(self):
        sessions.leave(self.headers.get("Mcp-Session-Id"))
        self.answer(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        method, name = message.get("method"), self.headers.get("Mcp-Session-Id")
        if method == "initialize":
            name = sessions.open()
            if name is None:
                return self.answer(503, {"error": "every session is taken"})
        elif not sessions.use(name):
            return self.answer(404)
        self.session = name
        if "id" not in message:
            return self.answer(202, session=name)
        reply = {"jsonrpc": "2.0", "id": message["id"], **self.result(method, message.get("params", {}))}
        self.answer(200, reply, name)

    def result(self, method, params):
        if method == "initialize":
            server = {"name": "shop", "version": "1"}
            revision = params.get("protocolVersion")
            return {"result": {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": server}}
        if method == "tools/list":
            return {"result": {"tools": [{"name": "price", "inputSchema": {"type": "object"}}]}}
        if method == "tools/call":
            try:
                text, failed = str(database.price()), False
            except psycopg2.Error as error:
                text, failed = f"database_unreachable: {error}", True
            return {"result": {"content": [{"type": "text", "text": text}], "isError": failed}}
        return {"error": {"code": -32601, "message": f"no method {method}"}}

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


if __name__ == "__main__":
    Server(ADDRESS, Handler).serve_forever()
