"""Streams seeded random bytes through a proxy that cuts connections, and checks that each byte arrives exactly once.

    python3 tests/exactly_once.py --transport unix --bytes 268435456 --cuts 200
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import random
import sys
import time
from pathlib import Path
from typing import Any, Dict

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support import CuttingProxy, Daemon, trl  # noqa: E402

BLOCK = 256 << 10

# One block at a time, with a pause and a line to stderr after each, so that the stream lasts long enough to be cut and
# has chunks of both kinds.
PRODUCER = """
i=0
while [ $i -lt {blocks} ]; do
  dd if={file} bs={block} skip=$i count=1 2>/dev/null
  echo "block $i" >&2
  sleep 0.005
  i=$((i+1))
done
exit 7
"""


class Check:
    """Checks the chunks of one stream."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()
        self.stdout = 0
        self.stderr = b""
        self.next = 0
        self.chunks = 0
        self.exits = 0

    def take(self, chunk: trl.Chunk) -> None:
        assert self.exits == 0, "a chunk after the exit"
        assert chunk.offset == self.next, f"{chunk} does not begin at {self.next}"
        assert chunk.type in ("stdout", "stderr", "exit"), chunk
        assert chunk.size == len(chunk.data), chunk
        self.next = chunk.next
        self.chunks += 1
        if chunk.type == "stdout":
            self.sha256.update(chunk.data)
            self.stdout += len(chunk.data)
        elif chunk.type == "stderr":
            self.stderr += chunk.data
        else:
            self.exits += 1


def exactly_once(transport: str, size: int, cuts: int, seed: int, use_asyncio: bool) -> Dict[str, Any]:
    blocks = -(-size // BLOCK)
    quota = f"--exec-quota-bytes={2 * size + (1 << 20)}"  # large enough to keep everything, so that there is no gap
    with Daemon(quota, http=transport == "http") as daemon, trl.connect(daemon.socket) as direct:
        file = os.path.join(daemon.directory, "data")
        expected = hashlib.sha256()
        numbers = random.Random(seed)
        with open(file, "wb") as out:
            for at in range(0, size, BLOCK):
                block = numbers.getrandbits(8 * BLOCK).to_bytes(BLOCK, "little")[: size - at]
                expected.update(block)
                out.write(block)
        # Base64 needs a third more, and chunks that were cut are sent again.
        mean = int(size * 4 / 3 / cuts * 0.7)
        if transport == "http":
            host, port = daemon.url.rsplit("/", 1)[1].split(":")
            proxy = CuttingProxy((host, int(port)), ("127.0.0.1", 0), cuts, mean, seed)
            address = f"http://127.0.0.1:{proxy.port}"
        else:
            path = os.path.join(daemon.directory, "proxy.sock")
            proxy = CuttingProxy(daemon.socket, path, cuts, mean, seed)
            address = f"unix:{path}"
        check = Check()
        began = time.monotonic()
        retry = trl.Retry(initial=0.01, maximum=0.1, total=20)
        with proxy, direct.session() as session:
            command = PRODUCER.format(file=file, block=BLOCK, blocks=blocks)

            async def follow() -> Any:
                async with trl.aio.connect(address, token=daemon.token, retry=retry) as client:
                    async with client.stream(session.id, command) as stream:
                        async for chunk in stream:
                            check.take(chunk)
                        return stream.result

            if use_asyncio:
                result = asyncio.run(follow())
            else:
                with trl.connect(address, token=daemon.token, retry=retry) as client:
                    with client.stream(session.id, command) as stream:
                        for chunk in stream:
                            check.take(chunk)
                        result = stream.result
            execs = session.execs()
        seconds = time.monotonic() - began
    assert check.sha256.digest() == expected.digest(), "the bytes differ"
    assert check.stdout == size, f"{check.stdout} bytes instead of {size}"
    assert check.stderr == b"".join(b"block %d\n" % i for i in range(blocks)), "stderr differs"
    assert check.exits == 1, f"{check.exits} exits"
    assert result is not None and result.exit_code == 7 and result.stdout_bytes == size, result
    assert len(execs) == 1, f"the command ran {len(execs)} times"
    assert proxy.cuts >= cuts, f"only {proxy.cuts} cuts of {cuts}"
    return {
        "transport": transport,
        "asyncio": use_asyncio,
        "bytes": check.stdout,
        "chunks": check.chunks,
        "cuts": proxy.cuts,
        "seconds": round(seconds, 1),
        "sha256": check.sha256.hexdigest(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--transport", choices=("unix", "http"), default="unix")
    parser.add_argument("--bytes", type=int, default=16 << 20)
    parser.add_argument("--cuts", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--asyncio", action="store_true", help="with trl_client.aio")
    args = parser.parse_args()
    found = exactly_once(args.transport, args.bytes, args.cuts, args.seed, args.asyncio)
    print(" ".join(f"{name}={value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
