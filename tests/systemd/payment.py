#!/usr/bin/python3
"""A server with a pool of connections (`payment.py server`), and a service that calls it (`payment.py caller ATTEMPTS`).

The caller tries again what has failed, so often at most, and `unbounded` without end or pause. It has a limiter of its own
for what goes out, and what that rejects has failed, too: so its retries make the limiter reject more of them. That is how
a pool that is used up becomes a storm. Its metrics are Prometheus's: GET /metrics.
"""

import http.client
import random
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SERVER = ("127.0.0.1", 8081)
CALLER = ("127.0.0.1", 8082)
# Connections that the server serves at a time.
POOL = 10
# A connection that asks nothing keeps its place so long.
PATIENCE = 600.0
# New requests of the caller's own callers, per second.
ARRIVING = 2.0
# What the caller lets out, per second.
OUTBOUND = 15.0
# Requests at a time; more are refused at once, for a host under test has to live.
MOST_AT_A_TIME = 12


class Connection(socketserver.BaseRequestHandler):
    pool = threading.Semaphore(POOL)

    def handle(self):
        if not self.pool.acquire(blocking=False):
            self.request.sendall(b"HTTP/1.1 503 pool exhausted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        try:
            self.request.settimeout(PATIENCE)
            while self.request.recv(4096):
                self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        except OSError:
            pass
        finally:
            self.pool.release()


class Pool(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


class Limiter:
    """A bucket of tokens."""

    def __init__(self, rate):
        self.rate, self.tokens, self.last, self.lock = rate, rate, time.monotonic(), threading.Lock()

    def admits(self):
        with self.lock:
            now = time.monotonic()
            self.tokens = min(self.rate, self.tokens + (now - self.last) * self.rate)
            self.last = now
            if self.tokens < 1:
                return False
            self.tokens -= 1
            return True


class Caller:
    def __init__(self, attempts):
        self.attempts = attempts
        self.limiter = Limiter(OUTBOUND)
        self.counts = dict.fromkeys(
            ["http_requests_total", "http_requests_failed_total", "http_client_retries_total", "http_client_rate_limited_total"], 0
        )
        self.lock = threading.Lock()
        self.places = threading.Semaphore(MOST_AT_A_TIME)

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def attempt(self):
        if not self.limiter.admits():
            self.count("http_client_rate_limited_total")
            return False
        try:
            connection = http.client.HTTPConnection(*SERVER, timeout=1.5)
            connection.request("GET", "/pay")
            paid = connection.getresponse().status == 200
            connection.close()
            return paid
        except (OSError, http.client.HTTPException):
            return False

    def request(self):
        self.count("http_requests_total")
        tried = 1
        paid = self.attempt()
        while not paid and (self.attempts is None or tried < self.attempts):
            # Bounded retries wait longer each time, and not all alike.
            time.sleep(0.05 if self.attempts is None else random.uniform(0.2, 0.6) * tried)
            self.count("http_client_retries_total")
            tried += 1
            paid = self.attempt()
        if not paid:
            self.count("http_requests_failed_total")

    def serve_one(self):
        if not self.places.acquire(blocking=False):
            self.count("http_requests_total")
            self.count("http_requests_failed_total")
            return
        try:
            self.request()
        finally:
            self.places.release()

    def work(self):
        while True:
            threading.Thread(target=self.serve_one, daemon=True).start()
            time.sleep(1 / ARRIVING)


def metrics(caller):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            with caller.lock:
                lines = [f"{name} {value}\n" for name, value in caller.counts.items()]
            text = "".join(lines) if self.path == "/metrics" else "up\n"
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    return Handler


if __name__ == "__main__":
    if sys.argv[1] == "server":
        Pool(SERVER, Connection).serve_forever()
    caller = Caller(None if sys.argv[2] == "unbounded" else int(sys.argv[2]))
    threading.Thread(target=caller.work, daemon=True).start()
    ThreadingHTTPServer(CALLER, metrics(caller)).serve_forever()
