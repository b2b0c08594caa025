"""A program that is called as `deepprof agent` is, and only answers: `PROGRAM agent --socket PATH ... --until-idle`.

ANSWER in its environment is what it states next to the usual (JSON), the file SOCKET.answer what it states from when it
is there; FAIL is a line with which it ends, and with HANGS it never listens. It ends when SOCKET.stop appears, or when
the folder of its socket is gone."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

from deepprof.collectors.live.packets import Kind
from tests.deepprof.live.agent.fake_agent import answer, pack

LOOK_S = 0.05


def main() -> None:
    path = Path(sys.argv[sys.argv.index("--socket") + 1])
    if line := os.environ.get("FAIL"):
        sys.stderr.write(f"deepprof: {line}\n")
        sys.exit(2)
    with path.with_suffix(".starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    while "HANGS" in os.environ and path.parent.exists() and not path.with_suffix(".stop").exists():
        time.sleep(LOOK_S)
    path.unlink(missing_ok=True)
    later = path.with_suffix(".answer")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as endpoint:
        endpoint.bind(str(path))
        endpoint.listen(64)
        endpoint.settimeout(LOOK_S)
        while path.exists() and not path.with_suffix(".stop").exists():
            try:
                connection, _ = endpoint.accept()
            except TimeoutError:
                continue
            said = json.loads(later.read_text() if later.exists() else os.environ.get("ANSWER", "{}"))
            fields = {"pid": os.getpid(), "socket": str(path)}
            with connection:
                if connection.recv(64):
                    connection.sendall(pack(Kind.ANSWER, json.dumps(answer(**fields, **said)).encode()))


if __name__ == "__main__":
    main()
