"""The asyncio client, against a real daemon over each transport."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import unittest
from typing import Any, Awaitable, Callable

from tests.support import Daemon, binary, check_unraised, trl
from trl_client import aio

daemon: Daemon


def setUpModule() -> None:
    global daemon
    daemon = Daemon("--grace-ms=300", http=True)


def tearDownModule() -> None:
    daemon.stop()
    check_unraised()


def connect(transport: str, **options: Any) -> aio.Client:
    address = {"unix": daemon.socket, "http": daemon.url, "stdio": f"stdio:{binary()} serve --stdio --log-level=error"}
    return aio.connect(address[transport], token=daemon.token, **options)


class OnEachTransport(unittest.TestCase):
    def each(self, test: Callable[[aio.Client], Awaitable[None]], *transports: str) -> None:
        async def with_client(transport: str) -> None:
            async with connect(transport) as client:
                await test(client)

        for transport in transports or ("unix", "http", "stdio"):
            with self.subTest(transport):
                asyncio.run(with_client(transport))
                gc.collect()  # so that resources left open warn here

    def test_run_and_stream(self) -> None:
        async def test(client: aio.Client) -> None:
            async with client.session(shell="bash", cwd="/usr") as s:
                r = await s.run("cd lib; echo hi")
                self.assertEqual((r.stdout, r.cwd), ("hi\n", "/usr/lib"))
                # The order of two pipes is defined only if one is read before the other is written.
                stream = s.stream("echo one; read x; printf '\\377' >&2; exit 4", stdin_open=True)
                chunks = []
                async for chunk in stream:
                    chunks.append(chunk)
                    if chunk.data == b"one\n":
                        await stream.input("\n")
                self.assertEqual([c.data for c in chunks], [b"one\n", b"\xff", b""])
                assert stream.result is not None
                self.assertEqual(stream.result.exit_code, 4)
                async with client.attach(stream.exec_id, from_=4) as again:
                    self.assertEqual(b"".join([c.data async for c in again]), b"\xff")
                async with s.stream("cat", stdin_open=True) as stream:
                    await stream.input("hello", eof=True)
                    self.assertEqual(b"".join([c.data async for c in stream]), b"hello")
            self.assertEqual((await s.info())["state"], "terminated")
            s = await client.session()
            self.assertEqual((await s.destroy())["survivors"], [])

        self.each(test)

    def test_unknown_option(self) -> None:
        async def test(client: aio.Client) -> None:
            async with client.session() as s:
                with self.assertRaisesRegex(TypeError, r"^run\(\) got an unexpected keyword argument 'colour'$"):
                    await client.run(s.id, "true", colour="red")  # type: ignore[call-arg]
                with self.assertRaisesRegex(TypeError, r"^run\(\) got an unexpected keyword argument 'colour'$"):
                    await s.run("true", colour="red")  # type: ignore[call-arg]
                for stream in (lambda **o: client.stream(s.id, "true", **o), lambda **o: s.stream("true", **o)):
                    with self.assertRaisesRegex(TypeError, r"^stream\(\) got an unexpected keyword argument 'colour'$"):
                        stream(colour="red")
                with self.assertRaisesRegex(TypeError, r"^session\(\) got an unexpected keyword argument 'colour'$"):
                    client.session(colour="red")  # type: ignore[call-arg]
                self.assertEqual(await s.execs(), [])

        self.each(test, "unix")

    def test_errors(self) -> None:
        async def test(client: aio.Client) -> None:
            with self.assertRaises(trl.SessionNotFound):
                await client.run("s-0000000000", "echo")
            with self.assertRaises(trl.SessionNotFound):
                await client.stream("s-0000000000", "echo").open()
            with self.assertRaises(trl.ExecNotFound):
                await client.attach("e-0000000000").open()
            self.assertEqual((await client.ping())["protocol"], 1)

        self.each(test)

    def test_many_at_once(self) -> None:
        async def test(client: aio.Client) -> None:
            async def work(number: int) -> None:
                async with client.session() as s:
                    for i in range(5):
                        self.assertEqual((await s.run(f"echo {number} {i}")).stdout, f"{number} {i}\n")
                        data = b"".join([c.data async for c in s.stream(f"echo {number} {i}")])
                        self.assertEqual(data, f"{number} {i}\n".encode())

            await asyncio.gather(*(work(n) for n in range(12)))

        self.each(test)

    def test_cancellation_leaves_the_client_whole(self) -> None:
        async def test(client: aio.Client) -> None:
            async with client.session() as s:
                async def running() -> None:  # the daemon may receive it after it was abandoned
                    while (await s.info())["state"] != "running":
                        await asyncio.sleep(0.02)

                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(s.run("sleep 600"), 0.3)
                await asyncio.wait_for(running(), 60)
                await s.cancel()
                with self.assertRaises(trl.CallTimeout):
                    await s.run("sleep 600", call_timeout=0.3)
                await asyncio.wait_for(running(), 60)
                await s.cancel()
                async with s.stream("echo a; read x; echo b", stdin_open=True) as stream:
                    self.assertEqual((await stream.__anext__()).data, b"a\n")
                    for _ in range(3):
                        with self.assertRaises(asyncio.TimeoutError):
                            await asyncio.wait_for(stream.__anext__(), 0.05)
                    await stream.input("\n")
                    self.assertEqual(b"".join([c.data async for c in stream]), b"b\n")
                self.assertEqual((await s.run("echo next")).stdout, "next\n")

        self.each(test)

    def test_a_cancelled_task_destroys_its_session(self) -> None:
        async def test(client: aio.Client) -> None:
            ids = []

            async def work() -> None:
                async with client.session() as s:
                    ids.append(s.id)
                    await s.run("sleep 30")

            async with client.watch() as watch:
                task = asyncio.ensure_future(work())
                async for event in watch:
                    if event.get("state") == "running":
                        break
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
            self.assertEqual((await client.session_info(ids[0]))["state"], "terminated")

        self.each(test)

    def test_a_stream_that_is_dropped_leaves_nothing_open(self) -> None:
        async def test(client: aio.Client) -> None:
            async with client.session() as s:
                stream = s.stream("while :; do echo x; done")
                async for _ in stream:
                    break
                await s.cancel()
                del stream

        self.each(test)

    def test_a_slow_reader_fills_no_memory(self) -> None:
        async def test(client: aio.Client) -> None:
            async with client.session() as s:
                async with s.stream("head -c 50000000 /dev/zero") as stream:
                    await stream.__anext__()
                    tracemalloc.start()
                    try:
                        while (await client.exec_info(stream.exec_id)).running:
                            await asyncio.sleep(0.01)
                        # Give it time to read on, which it must not do.
                        await asyncio.sleep(0.2)
                        held, _ = tracemalloc.get_traced_memory()
                    finally:
                        tracemalloc.stop()
                    self.assertLess(held, 4 << 20)
                    self.assertEqual((await stream.wait()).stdout_bytes, 50_000_000)

        self.each(test)

    def test_not_connected(self) -> None:
        async def test() -> None:
            with self.assertRaises(RuntimeError):
                await connect("unix").ping()
            for address in ("/no/such.sock", "http://127.0.0.1:1", "stdio:/no/such/command", "stdio:false"):
                with self.subTest(address), self.assertRaises(trl.NoDaemon):
                    async with aio.connect(address):
                        pass

        asyncio.run(test())


if __name__ == "__main__":
    unittest.main()
