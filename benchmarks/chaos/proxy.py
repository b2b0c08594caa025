"""A way to the daemon that can fall silent: what is on it stays open, and nothing passes any more."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Proxy", "passing"]

PIECE_NBYTES = 1 << 16


@dataclass(eq=False)
class Link:
    """A connection through the proxy: both its ends, and whether it is silent."""

    ends: tuple[socket.socket, socket.socket]
    silent: threading.Event = field(default_factory=threading.Event)

    def carry(self, near: int) -> None:
        """Pass on what comes from one end, until it closes; silent links swallow it, and do not close the other."""
        with contextlib.suppress(OSError):
            while piece := self.ends[near].recv(PIECE_NBYTES):
                if not self.silent.is_set():
                    self.ends[1 - near].sendall(piece)
            if not self.silent.is_set():
                self.ends[1 - near].shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@dataclass
class Proxy:
    """Listens at `address`, and connects each client to `target` (HOST:PORT)."""

    server: socket.socket
    target: str
    links: list[Link] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.getsockname()[1]}"

    def serve(self) -> None:
        """Take clients until closed."""
        host, _, port = self.target.rpartition(":")
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.server.accept()
                try:
                    link = Link((client, socket.create_connection((host, int(port)))))
                except OSError:
                    client.close()
                    continue
                self.links.append(link)
                for near in (0, 1):
                    threading.Thread(target=link.carry, args=(near,), daemon=True).start()

    def fall_silent(self) -> int:
        """Have nothing pass over the present links any more, and return how many there are; new ones are whole."""
        links = [link for link in list(self.links) if not link.silent.is_set()]
        for link in links:
            link.silent.set()
        return len(links)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)  # which wakes the thread that waits for clients
        self.server.close()
        for link in self.links:
            link.close()


@contextlib.contextmanager
def passing(target: str) -> Iterator[Proxy]:
    """Give a proxy before `target`."""
    proxy = Proxy(socket.create_server(("127.0.0.1", 0)), target)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
