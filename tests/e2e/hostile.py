"""Clients that mean a metrics port no good, and one that only wants the figures. Also used by
tools/metrics_port_clients.py."""

import contextlib
import pathlib
import socket
import threading
import time
import urllib.request


def peak_memory(pid):
    """Bytes: the most the process has had resident."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise ValueError(f"process {pid} has no VmHWM")


def descriptors(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def scrape(port, limit_s=10):
    """The page of figures: its type and its text."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=limit_s) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


def ask(port, request):
    """What a request, given as bytes, is answered with; b"" where the connection was reset."""
    answer = b""
    with connect(port) as client, contextlib.suppress(ConnectionError):
        client.sendall(request)
        while part := client.recv(65536):
            answer += part
    return answer


def send_for_ever(port, head, block, limit_bytes):
    """Sends `head` and then blocks, until the server has had enough or so many bytes are sent.
    Returns how many were."""
    sent = 0
    with connect(port) as client, contextlib.suppress(ConnectionError, TimeoutError):
        client.sendall(head)
        while sent < limit_bytes:
            client.sendall(block)
            sent += len(block)
    return sent


def post(port, limit_bytes=600 << 20):
    head = b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000000\r\n\r\n"
    return send_for_ever(port, head, bytes(1 << 20), limit_bytes)


def endless_head(port, limit_bytes=600 << 20):
    return send_for_ever(port, b"GET /metrics HTTP/1.1\r\n", b"X-Line: 0123456789abcdef\r\n" * 4096,
                         limit_bytes)


class SlowClients:
    """So many connections that send a byte now and then and never a whole request; each that the
    server closes is opened again."""

    def __init__(self, port, count):
        self.port, self.count = port, count
        self.ended = threading.Event()
        self.opened = 0  # connections, in all

    def __enter__(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def open(self):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", self.port))
        self.opened += 1
        return client

    def run(self):
        clients = [self.open() for _ in range(self.count)]
        while not self.ended.is_set():
            for i, client in enumerate(clients):
                try:
                    client.send(b"G")
                except BlockingIOError:
                    pass
                except OSError:
                    client.close()
                    clients[i] = self.open()
            time.sleep(0.05)
        for client in clients:
            client.close()
