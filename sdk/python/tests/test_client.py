"""The blocking client, against a real daemon over each transport."""

from __future__ import annotations

import asyncio
import functools
import inspect
import keyword
import os
import pathlib
import pydoc
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from types import MappingProxyType
from typing import Any, Callable, Dict, List, get_type_hints
from unittest import mock

from tests.support import ROOT, CuttingProxy, Daemon, binary, check_unraised, trl
from trl_client import _types as types
from trl_client import aio
from trl_client._errors import _BY_CODE
from trl_client._options import CONVERSIONS, params_of
from trl_client._types import ERROR_NUMBERS, METHODS
from trl_client._wire import Address, Chunk, decode_bytes, encode_bytes, milliseconds, parse_address

daemon: Daemon


def setUpModule() -> None:
    global daemon
    daemon = Daemon("--grace-ms=300", http=True)


def tearDownModule() -> None:
    daemon.stop()
    check_unraised()


def connect(transport: str, **options: Any) -> trl.Client:
    address = {"unix": daemon.socket, "http": daemon.url, "stdio": f"stdio:{binary()} serve --stdio --log-level=error"}
    return trl.connect(address[transport], token=daemon.token, **options)


TRANSPORTS = ("unix", "http", "stdio")


class Params(unittest.TestCase):
    """Each function takes the parameters of its method of the contract."""

    RENAMED = {"yield_ms": "yield_after", "encoding": "data"}

    def argument(self, field: str) -> str:
        """Returns the name of the argument that sets a field."""
        name = self.RENAMED.get(field) or re.sub("_(ms|encoding)$", "", field)
        return name + "_" if keyword.iskeyword(name) else name

    #: Method: the function of the client for it. Streams close themselves.
    FUNCTIONS = {
        "system.ping": "ping",
        "system.info": "info",
        "system.stats": "stats",
        "system.upgrade": "upgrade",
        "session.create": "session",
        "session.list": "sessions",
        "session.info": "session_info",
        "session.destroy": "destroy_session",
        "session.watch": "watch",
        "session.resize": "resize",
        "session.screen": "screen",
        "session.hold": "hold",
        "session.release": "release",
        "exec.run": "run",
        "exec.stream": "stream",
        "exec.attach": "attach",
        "exec.output": "output",
        "exec.input": "input",
        "exec.signal": "signal",
        "exec.cancel": "cancel",
        "exec.info": "exec_info",
        "exec.list": "execs",
        "place.list": "places",
        "place.add": "add_place",
        "place.check": "check_place",
        "place.remove": "remove_place",
        "place.upgrade": "upgrade_place",
    }

    def test_every_param(self) -> None:
        """Every method of the contract has a function, which takes every param of it."""
        # A client makes requests for its own user only, so it needs no delegate and disconnect.
        self.assertEqual(set(METHODS), {*self.FUNCTIONS, "stream.close", "system.delegate", "system.disconnect"})
        for method, name in self.FUNCTIONS.items():
            for client in (trl.Client, aio.Client):
                takes = inspect.signature(getattr(client, name)).parameters
                for field in get_type_hints(getattr(types, METHODS[method][0])):
                    with self.subTest(function=name, client=client.__module__, field=field):
                        self.assertIn(self.argument(field), takes)

    def test_handles_take_the_same(self) -> None:
        """What a handle does for its command takes what the client takes for any."""
        for of, client in ((trl.Exec, trl.Client), (aio.Exec, aio.Client)):
            for mine, theirs in (("output", "output"), ("send_input", "input"), ("signal", "signal")):
                own = set(inspect.signature(getattr(of, mine)).parameters) - {"self"}
                wanted = set(inspect.signature(getattr(client, theirs)).parameters) - {"self", "exec_id"}
                self.assertEqual(own, wanted, (of, mine))

    OPTIONS = {
        "session": types.SessionOptions,
        "run": types.RunOptions,
        "stream": types.StreamOptions,
        "start": types.StreamOptions,
    }

    def test_options_are_generated(self) -> None:
        for of in (trl.Client, trl.Session, aio.Client, aio.Session):
            for name, options in self.OPTIONS.items():
                if not hasattr(of, name):
                    continue
                with self.subTest(function=name, of=f"{of.__module__}.{of.__name__}"):
                    function = getattr(of, name)
                    takes = inspect.signature(function).parameters.values()
                    keywords = {p.name: p.annotation for p in takes if p.kind is p.KEYWORD_ONLY}
                    if name in ("run", "start"):
                        self.assertEqual(keywords.pop("on_stdout"), keywords.pop("on_stderr"))
                    self.assertEqual(keywords, options.__annotations__)
                    self.assertFalse([p for p in takes if p.kind is p.VAR_KEYWORD])
                    hints = get_type_hints(function)
                    self.assertEqual({k: hints[k] for k in keywords}, get_type_hints(options))
                    awaited = name in ("run", "start") and of in (aio.Client, aio.Session)
                    self.assertEqual(inspect.iscoroutinefunction(function), awaited)
                    text = pydoc.plain(pydoc.render_doc(function))
                    for name in keywords:
                        self.assertRegex(text, rf"(?m)^ +{name}( \(seconds\))?: \S")

    def test_new_option(self) -> None:
        """A field that the generator adds is accepted and sent, without any other change."""
        added = {name: {**table, "pause": ("pause_ms", "milliseconds")} for name, table in types.OPTIONS.items()}
        with mock.patch.object(types, "OPTIONS", added), connect("unix") as client, client.session() as session:
            for call in (
                lambda: client.session(pause=1.5),
                lambda: session.run("true", pause=1.5),
                lambda: session.stream("true", pause=1.5),
                lambda: session.start("true", pause=1.5),
            ):
                with self.assertRaises(trl.InvalidParams) as refused:  # by the daemon, which does not know it
                    call()
                self.assertEqual(refused.exception.details["field"], "pause_ms")

    def test_unknown_option(self) -> None:
        with connect("unix") as client, client.session() as session:
            calls: List[Callable[..., Any]] = [
                client.session,
                functools.partial(client.run, session.id, "true"),
                functools.partial(client.stream, session.id, "true"),
                functools.partial(session.run, "true"),
                functools.partial(session.stream, "true"),
            ]
            for call in calls:
                name = getattr(call, "func", call).__name__
                for wrong in ("colour", "timeout_ms", "stdin_encoding"):
                    with self.subTest(function=name, argument=wrong):
                        with self.assertRaises(TypeError) as refused:
                            call(timeout=1, **{wrong: 1})
                        want = f"{name}() got an unexpected keyword argument {wrong!r}"
                        self.assertEqual(str(refused.exception), want)
            with self.assertRaisesRegex(TypeError, "yield_after"):
                session.stream("true", yield_after=1)  # type: ignore[call-arg]
            self.assertEqual(session.execs(), [])

    def test_conversions(self) -> None:
        env = MappingProxyType({"A": None})
        for function, options, want in [
            ("run", {"timeout": 0.0001, "yield_after": 2}, {"timeout_ms": 1, "yield_ms": 2000}),
            ("run", {"idle_timeout": 0, "lease": ""}, {"idle_timeout_ms": 0, "lease": ""}),
            ("run", {"stdin": b"\xff"}, {"stdin": "/w==", "stdin_encoding": "base64"}),
            ("run", {"cwd": pathlib.Path("/usr"), "env": env}, {"cwd": "/usr", "env": {"A": None}}),
            ("run", {"stdin": "", "max_output_bytes": 0, "key": ""}, {"stdin": "", "max_output_bytes": 0, "key": ""}),
            ("run", {"merge": False, "wait": True, "stdin_open": None, "call_timeout": 1}, {"wait": True}),
            ("stream", {"timeout": None, "key": None, "lease": "l"}, {"lease": "l"}),
            ("session", {"argv": ("ls", "-l"), "tags": []}, {"argv": ["ls", "-l"], "tags": []}),
            ("session", {"tty": {"rows": 1, "cols": 2}, "login": True}, {"tty": {"rows": 1, "cols": 2}, "login": True}),
            ("session", {"idle_ttl": 1, "reconnect": 3}, {"idle_ttl_ms": 1000, "reconnect_ms": 3000}),
        ]:
            with self.subTest(function=function, options=options):
                self.assertEqual(params_of(function, options), want)
        with self.assertRaises(TypeError):
            params_of("run", {"cwd": 5})
        for table in types.OPTIONS.values():
            for param, conversion in table.values():
                self.assertIn(conversion, ("", "bytes", "flag", *CONVERSIONS), param)

    def test_sent(self) -> None:
        with connect("unix") as client, client.session(env={"A": "1", "LANG": None}, create_timeout=20) as session:
            result = session.run("echo out; echo err >&2; echo ${A-none} ${LANG-none}", merge=True, label="both", env={"A": None})
            self.assertEqual(result.stdout, "out\nerr\nnone none\n")
            self.assertTrue(result.raw["merged"])
            self.assertEqual(result.raw["label"], "both")
            self.assertIn(session.id, [each["session_id"] for each in client.sessions(alive=True)])


class OnEachTransport(unittest.TestCase):
    """Behaviour that must be the same over each transport."""

    def each(self, test: Callable[[trl.Client], None]) -> None:
        for transport in TRANSPORTS:
            with self.subTest(transport), connect(transport) as client:
                test(client)

    def test_run(self) -> None:
        def test(client: trl.Client) -> None:
            with client.session(shell="bash", cwd="/usr", env={"WORD": "hé"}) as s:
                r = s.run(r"cd lib; echo $WORD; printf 'a\377\0' >&2; exit 3")
                self.assertEqual((r.exit_code, r.outcome, r.ok, r.running), (3, "shell_exited", False, False))
                self.assertEqual((r.stdout, r.stdout_data, r.stderr_data), ("hé\n", "hé\n".encode(), b"a\xff\0"))
                self.assertEqual((r.stderr, r.cwd, r.stderr_bytes), ("a\ufffd\0", "/usr/lib", 3))
                self.assertGreater(r.started_at.year, 2000)
                with self.assertRaises(trl.CommandFailed) as failed:
                    r.check()
                self.assertIs(failed.exception.result, r)
                self.assertTrue(s.run("true").check().ok)
                r = s.run("echo before; sleep 60", timeout=1)
                self.assertEqual((r.timed_out, r.stdout, r.ok), (True, "before\n", False))

        self.each(test)

    def test_stdin(self) -> None:
        def test(client: trl.Client) -> None:
            with client.session() as s:
                for given in ("text é", b"\xff\0bytes", "a\0b", ""):
                    want = given.encode() if isinstance(given, str) else given
                    self.assertEqual(s.run("cat", stdin=given).stdout_data, want)
                with s.stream("cat", stdin="first ", stdin_open=True) as stream:
                    big = bytes(range(256)) * 10_000  # more than one call, and more than fits in a pipe
                    taken = []
                    writer = threading.Thread(target=lambda: taken.append(stream.input(big, eof=True)))
                    writer.start()
                    got = b"".join(chunk.data for chunk in stream)
                    writer.join()
                    self.assertEqual(got, b"first " + big)
                    self.assertEqual(taken, [len(big)])

        self.each(test)

    def test_once(self) -> None:
        def test(client: trl.Client) -> None:
            with client.session(key=(key := os.urandom(8).hex()), name="once") as s:
                self.assertEqual(client.session(key=key, name="once").id, s.id)
                with self.assertRaises(trl.InvalidParams):
                    client.session(key=key, name="another")
                with s.stream("cat", stdin_open=True) as stream:
                    big = bytes(range(256)) * 10_000  # in parts, each with its own key
                    for _ in range(2):
                        self.assertEqual(stream.input("one\n", key="1").next, 4)
                        written = stream.input(big, key="2")
                        self.assertEqual((written, written.next, written.unknown), (len(big), 4 + len(big), False))
                        self.assertEqual(stream.input("three\n", at=written.next, whole=True, eof=True), 6)
                    self.assertEqual(b"".join(chunk.data for chunk in stream), b"one\n" + big + b"three\n")

        self.each(test)

    def test_stream(self) -> None:
        def test(client: trl.Client) -> None:
            with client.session() as s:
                # The order of two pipes is defined only if one is read before the other is written.
                command = "echo one; read x; echo two >&2; read x; printf 'a\\377'; exit 4"
                stream = s.stream(command, stdin_open=True)
                chunks = []
                for chunk in stream:
                    chunks.append(chunk)
                    if chunk.data.endswith(b"\n"):
                        stream.input("\n")
                self.assertEqual([c.type for c in chunks], ["stdout", "stderr", "stdout", "exit"])
                self.assertEqual([c.data for c in chunks], [b"one\n", b"two\n", b"a\xff", b""])
                self.assertEqual([c.text for c in chunks], ["one\n", "two\n", "a\ufffd", ""])
                self.assertEqual([c.offset for c in chunks], [0, 4, 8, 10])
                self.assertEqual([c.next for c in chunks], [4, 8, 10, 10])
                assert stream.result is not None
                self.assertEqual((stream.result.exit_code, stream.offset), (4, 10))
                self.assertEqual(list(stream), [])
                with client.attach(stream.exec_id, from_=4) as again:
                    self.assertEqual(b"".join(c.data for c in again), b"two\na\xff")
                    assert again.result is not None
                    self.assertEqual(again.result.exit_code, 4)
                self.assertEqual([c.type for c in s.stream("true")], ["exit"])
                # A background process does not delay the stream's end.
                with s.stream("(sleep 30; echo late) & echo now") as stream:
                    self.assertEqual(b"".join(c.data for c in stream), b"now\n")

        self.each(test)

    def test_stream_is_left_early(self) -> None:
        def test(client: trl.Client) -> None:
            with client.session() as s:
                with s.stream("while :; do echo x; done") as stream:
                    next(stream)
                    self.assertTrue(stream.cancel()["cancelled"])
                    self.assertTrue(stream.wait().cancelled)
                stream = s.stream("echo on; sleep 0.1; echo and on")
                next(stream)
                stream.close()
                self.assertEqual(list(stream), [])
                self.assertEqual(client.attach(stream.exec_id).wait().exit_code, 0)

        self.each(test)

    def test_direct_command(self) -> None:
        def test(client: trl.Client) -> None:
            with client.session(argv=["sh", "-c", "echo direct; exit 5"]) as s, s.attach() as stream:
                self.assertEqual(b"".join(c.data for c in stream), b"direct\n")
                assert stream.result is not None
                self.assertEqual(stream.result.exit_code, 5)

        self.each(test)

    def test_session_is_destroyed(self) -> None:
        def test(client: trl.Client) -> None:
            with client.session(name="a") as s:
                s.run("sleep 1000 &")
                self.assertEqual(len([p for p in s.info()["processes"] if "role" not in p]), 1)
            self.assertEqual(s.info()["state"], "terminated")
            self.assertEqual(s.info()["processes"], [])
            with self.assertRaises(ZeroDivisionError), client.session() as s:
                raise ZeroDivisionError
            self.assertEqual(s.info()["state"], "terminated")
            with client.session() as s:
                s.destroy(force=True)  # and again at the end, which is not an error

        self.each(test)

    def test_errors(self) -> None:
        def test(client: trl.Client) -> None:
            with client.session() as s:
                running = s.run("sleep 30", yield_after=0.01)
                self.assertTrue(running.running)
                cases: Dict[Any, Callable[[], Any]] = {
                    trl.SessionBusy: lambda: s.run("echo"),
                    trl.SessionNotFound: lambda: client.run("s-0000000000", "echo"),
                    trl.ExecNotFound: lambda: client.attach("e-0000000000"),
                    trl.InvalidParams: lambda: client.call("session.list", colour="red"),
                    trl.MethodNotFound: lambda: client.call("session.paint"),
                    trl.ShellNotFound: lambda: client.session(shell="no-such-shell"),
                    trl.CwdNotFound: lambda: client.session(cwd="/no/such/directory"),
                    trl.RuntimeNotFound: lambda: client.session(runtime="moon"),
                }
                for kind, act in cases.items():
                    with self.assertRaises(kind) as raised:
                        act()
                    self.assertIsInstance(raised.exception, trl.TRLError)
                    self.assertEqual(_BY_CODE[raised.exception.code], kind)
                    self.assertIn(raised.exception.message, str(raised.exception))
                with self.assertRaises(trl.SessionBusy) as busy:
                    s.stream("echo")
                self.assertEqual(busy.exception.details["exec_id"], running.exec_id)
                self.assertTrue(busy.exception.hint)
                self.assertTrue(s.cancel()["cancelled"])

        self.each(test)

    def output(self, client: trl.Client, exec_id: str) -> bool:
        self.assertIsNone(client.output(exec_id, wait=5).chunks[0].at)
        timed = client.output(exec_id, times=True).chunks
        self.assertEqual([c.data for c in timed], [b"out\n", b"err\n"])
        self.assertGreater(timed[1].at or 0, timed[0].at or 0)
        return client.output(exec_id, wait=5, stream="stderr").text == "err\n"

    def upgrade(self, client: trl.Client) -> bool:
        with self.assertRaises((trl.InvalidParams, trl.Forbidden)):
            client.call("system.upgrade", no=1)
        return True

    def delegate(self, client: trl.Client) -> bool:
        with self.assertRaises((trl.InvalidParams, trl.Forbidden)):
            client.call("system.delegate", no=1)
        with self.assertRaises(trl.InvalidRequest):
            client.call("system.disconnect", connection="c-1")
        return True

    def no_place(self, method: Callable[[str], Any]) -> bool:
        # Over HTTP the client may be a token that is not an admin's.
        with self.assertRaises((trl.RuntimeNotFound, trl.Forbidden)):
            method("nowhere:1")
        return True

    def test_every_method(self) -> None:
        def test(client: trl.Client) -> None:
            tag = os.urandom(4).hex()
            with client.session(tags=[tag]) as s, client.session(tty={"rows": 24, "cols": 80}) as on_tty:
                tty = on_tty.id
                r = s.run("echo out; read x; sh -c 'echo err >&2; exec sleep 100'", stdin_open=True, yield_after=0.1)
                e = r.exec_id
                client.output(e, wait=60)
                time.sleep(0.05)  # so that the two have different times
                client.input(e, "\n")
                client.output(e, 4, wait=60)
                cases: Dict[str, Callable[[], Any]] = {
                    "system.ping": lambda: client.ping()["protocol"] == 1,
                    "system.info": lambda: client.system_info()["pid"] > 0,
                    "system.stats": lambda: client.stats()["execs_running"] >= 1,
                    # Without the field it would be accepted.
                    "system.upgrade": lambda: self.upgrade(client),
                    "system.delegate": lambda: self.delegate(client),
                    "system.disconnect": lambda: self.delegate(client),
                    "session.list": lambda: [x["session_id"] for x in client.sessions(tag=tag)] == [s.id],
                    "session.info": lambda: client.session_info(s.id)["state"] == "running",
                    "exec.output": lambda: self.output(client, e),
                    "exec.info": lambda: client.exec_info(e).running,
                    "exec.list": lambda: [x.exec_id for x in client.execs(s.id)] == [e],
                    "place.list": lambda: client.places() == [],
                    "place.add": lambda: self.no_place(client.add_place),
                    "place.check": lambda: self.no_place(client.check_place),
                    "place.remove": lambda: self.no_place(client.remove_place),
                    "place.upgrade": lambda: self.no_place(client.upgrade_place),
                    "stream.close": lambda: client.call("stream.close", stream_id="st-0000000000")["closed"] is False,
                    "exec.signal": lambda: client.signal(e, signal.SIGTERM) == 1,
                    "exec.attach": lambda: client.attach(e).wait().outcome in ("signaled", "exited"),
                    "exec.run": lambda: client.run(s.id, "echo hi").stdout == "hi\n",
                    "exec.stream": lambda: client.stream(s.id, "exit 2").wait().exit_code == 2,
                    "exec.cancel": lambda: client.cancel(e)["cancelled"] is False,
                    "exec.input": lambda: self.input(client, s),
                    "session.watch": lambda: self.watch(client, s),
                    "session.resize": lambda: client.resize(tty, 30, 90)["tty"] == {"rows": 30, "cols": 90},
                    "session.screen": lambda: client.screen(tty)["cols"] == 90,
                    "session.hold": lambda: client.hold(tty, "me")["hold"]["holder"] == "me",
                    "session.release": lambda: client.release(tty, client.hold(tty, "me", force=True)["lease"]),
                    "session.create": lambda: client.get_session(client.call("session.create")["session_id"]).destroy(),
                    "session.destroy": lambda: client.destroy_session(s.id)["survivors"] == [],
                }
                self.assertEqual(set(cases), set(METHODS))
                for method, act in cases.items():
                    self.assertTrue(act(), method)
            # The types list what exists.
            info = client.call("system.info")
            self.assertLessEqual(set(trl.types.SystemInfo.__annotations__) - {"node", "places"}, set(info))

        self.each(test)

    def input(self, client: trl.Client, s: trl.Session) -> bool:
        r = s.run("cat", stdin_open=True, yield_after=0.05)
        return client.input(r.exec_id, "x", eof=True) == 1 and client.attach(r.exec_id).wait().stdout_bytes == 1

    def watch(self, client: trl.Client, s: trl.Session) -> bool:
        with s.watch() as watch:
            s.run("true")
            events = [next(watch), next(watch)]
        self.assertEqual([(e["type"], e["state"]) for e in events], [("state", "running"), ("state", "idle")])
        with s.watch(snapshot=True, execs=True) as whole:
            s.run("exit 3")
            types = [next(whole)["type"] for _ in range(4)]
            ended = next(whole)
        self.assertEqual(types, ["snapshot", "snapshot_end", "state", "exec_started"])
        self.assertEqual((ended["type"], ended["outcome"], ended["exit_code"]), ("exec_ended", "shell_exited", 3))
        return list(watch) == []

    def test_threads(self) -> None:
        def test(client: trl.Client) -> None:
            failures = []

            def work(number: int) -> None:
                try:
                    with client.session() as s:
                        for i in range(10):
                            text = f"{number} {i}\n"
                            assert s.run(f"echo {number} {i}").stdout == text
                            assert b"".join(c.data for c in s.stream(f"echo {number} {i}")) == text.encode()
                except BaseException as error:
                    failures.append(error)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])

        self.each(test)

    def execs(self, s: Any) -> List[Any]:
        """Returns the commands of a session, once the daemon has received one."""
        until = time.monotonic() + 60
        while not s.execs():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        return list(s.execs())

    def test_call_timeout_leaves_the_client_whole(self) -> None:
        def test(client: trl.Client) -> None:
            with client.session() as s:
                with self.assertRaises(trl.CallTimeout) as late:
                    s.run("read x; echo done", stdin_open=True, call_timeout=0.3)
                self.assertIsInstance(late.exception, TimeoutError)
                [running] = self.execs(s)
                self.assertTrue(running.running)
                client.input(running.exec_id, "\n")
                self.assertEqual(client.attach(running.exec_id).wait().exit_code, 0)
                self.assertEqual(s.run("echo next").stdout, "next\n")

        self.each(test)

    def test_interrupt_leaves_the_client_whole(self) -> None:
        def test(client: trl.Client) -> None:
            def interrupt(*_: object) -> None:
                raise KeyboardInterrupt

            before = signal.signal(signal.SIGALRM, interrupt)
            try:
                with client.session() as s:
                    with self.assertRaises(KeyboardInterrupt):
                        signal.setitimer(signal.ITIMER_REAL, 0.3)
                        s.run("sleep 600")
                    self.execs(s)
                    s.cancel()
                    stream = s.stream("echo a; read x; echo b", stdin_open=True)
                    self.assertEqual(next(stream).data, b"a\n")
                    with self.assertRaises(KeyboardInterrupt):
                        signal.setitimer(signal.ITIMER_REAL, 0.1)
                        next(stream)
                    stream.input("\n")
                    self.assertEqual(b"".join(c.data for c in stream), b"b\n")
                    self.assertEqual(s.run("echo next").stdout, "next\n")
            finally:
                signal.signal(signal.SIGALRM, before)

        self.each(test)


class LostConnections(unittest.TestCase):
    def through_proxy(self, transport: str, cuts: int) -> CuttingProxy:
        # A mean of one byte cuts every answer.
        if transport == "unix":
            return CuttingProxy(daemon.socket, os.path.join(daemon.directory, f"cut-{time.monotonic_ns()}"), cuts, 1, 1)
        host, port = daemon.url.rsplit("/", 1)[1].split(":")
        return CuttingProxy((host, int(port)), ("127.0.0.1", 0), cuts, 1, 1)

    def address(self, transport: str, proxy: CuttingProxy) -> str:
        return f"http://127.0.0.1:{proxy.port}" if transport == "http" else proxy.path

    def test_a_command_runs_once(self) -> None:
        for transport in ("unix", "http"):
            with self.subTest(transport), connect(transport) as direct, direct.session() as s:
                for act in ("run", "stream"):
                    with self.through_proxy(transport, 5) as proxy:
                        file = os.path.join(daemon.directory, f"{transport}-{act}")
                        with trl.connect(self.address(transport, proxy), token=daemon.token) as client:
                            command = f"echo once >> {file}; echo done"
                            if act == "run":
                                self.assertEqual(client.run(s.id, command).stdout, "done\n")
                            else:
                                data = b"".join(c.data for c in client.stream(s.id, command))
                                self.assertEqual(data, b"done\n")
                            self.assertEqual(client.ping()["protocol"], 1)
                        self.assertEqual(proxy.cuts, 5)
                    with open(file) as written:
                        self.assertEqual(written.read(), "once\n")

    def test_what_may_not_be_repeated_is_not(self) -> None:
        for transport in ("unix", "http"):
            with self.subTest(transport), connect(transport) as direct, direct.session() as s:
                with self.through_proxy(transport, 1) as proxy:
                    with trl.connect(self.address(transport, proxy), token=daemon.token) as client:
                        with self.assertRaises(trl.ConnectionLost) as lost:
                            client.run(s.id, "true", key="")
                        self.assertIn("unknown", lost.exception.hint)
                        self.assertIsInstance(lost.exception, ConnectionError)
                        self.assertEqual(proxy.cuts, 1)

    def test_the_limit_holds(self) -> None:
        with connect("unix") as direct, direct.session() as s, self.through_proxy("unix", 1000) as proxy:
            began = time.monotonic()
            with trl.connect(proxy.path, retry=trl.Retry(total=0.5)) as client:
                with self.assertRaises(trl.ConnectionLost):
                    client.stream(s.id, "echo").wait()
                self.assertGreater(proxy.cuts, 1)
            self.assertLess(time.monotonic() - began, 60)
            with trl.connect(proxy.path, retry=trl.Retry(total=0)) as client:
                before = proxy.cuts
                with self.assertRaises(trl.ConnectionLost):
                    client.ping()
                self.assertEqual(proxy.cuts, before + 1)

    def test_no_daemon(self) -> None:
        for address in ("/no/such.sock", "http://127.0.0.1:1", "stdio:/no/such/command", "stdio:false"):
            with self.subTest(address), self.assertRaises(trl.NoDaemon) as none:
                trl.connect(address)
            self.assertIn("trl serve", none.exception.hint)

    def test_an_idle_connection_that_ended_is_replaced(self) -> None:
        with Daemon() as other:
            with trl.connect(other.socket) as client:
                client.ping()
                path = other.socket
                other._process.terminate()
                other._process.wait()
                with self.assertRaises(trl.NoDaemon):  # and not ConnectionLost: nothing was sent
                    client.session()
                again = subprocess.Popen([binary(), "serve", "--socket", path, "--log-level=error"])
                try:
                    until = time.monotonic() + 60
                    while True:
                        try:
                            client.session().destroy()
                            break
                        except trl.NoDaemon:
                            self.assertLess(time.monotonic(), until)
                            time.sleep(0.02)
                finally:
                    again.terminate()
                    again.wait()

    def test_watch_shows_what_it_can_not_know(self) -> None:
        with connect("unix") as direct, direct.session() as s:
            path = os.path.join(daemon.directory, "watch.sock")
            with CuttingProxy(daemon.socket, path, 0, 1, 1) as proxy, trl.connect(path) as client:
                with client.watch(s.id) as watch:
                    s.run("true")
                    self.assertEqual([next(watch)["type"], next(watch)["type"]], ["state", "state"])
                    proxy.cut_all()
                    self.assertEqual(next(watch)["type"], "gap")
                    s.run("true")
                    self.assertEqual([next(watch)["type"], next(watch)["type"]], ["state", "state"])


class Quota(unittest.TestCase):
    def test_a_gap_is_shown(self) -> None:
        with Daemon("--exec-quota-bytes=1048576") as small, trl.connect(small.socket) as client:
            with client.session() as s:
                r = s.run("head -c 5000000 /dev/zero")
                with client.attach(r.exec_id) as stream:
                    chunks = list(stream)
        [gap] = [c for c in chunks if c.type == "gap"]
        self.assertEqual(gap.data, b"")
        self.assertEqual(sum(c.size for c in chunks), 5_000_000)
        self.assertEqual(gap.size + sum(len(c.data) for c in chunks), 5_000_000)
        for before, after in zip(chunks, chunks[1:]):
            self.assertEqual(before.next, after.offset)

    def test_too_many_requests_are_waited_out(self) -> None:
        with Daemon("--http-rate=20", http=True) as slow, trl.connect(slow.url, token=slow.token) as client:
            for _ in range(60):
                client.ping()
            with trl.connect(slow.url, token=slow.token, retry=trl.Retry(total=0)) as impatient:
                with self.assertRaises(trl.RuntimeUnavailable):
                    for _ in range(60):
                        impatient.ping()


class Access(unittest.TestCase):
    def test_tokens(self) -> None:
        with mock.patch.dict(os.environ, {"TRL_TOKEN": daemon.token or ""}), trl.connect(daemon.url) as client:
            client.ping()
        with trl.connect(daemon.url, token="wrong") as client:
            with self.assertRaises(trl.Unauthorized):
                client.ping()
            with self.assertRaises(trl.Unauthorized):
                client.attach("e-0000000000")
            with self.assertRaises(trl.Unauthorized):
                client.watch()
        with self.assertRaises(ValueError):
            trl.connect(daemon.url, token="a\r\nX-Evil: 1")

    @unittest.skipUnless(shutil.which("openssl"), "needs openssl to make a certificate")
    def test_tls(self) -> None:
        directory = tempfile.mkdtemp(prefix="py-client-")
        self.addCleanup(shutil.rmtree, directory)
        cert, key = os.path.join(directory, "cert"), os.path.join(directory, "key")
        make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
        names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
        subprocess.run(["openssl", *make.split(), *names], check=True, capture_output=True)
        with Daemon(f"--http-tls-cert={cert}", f"--http-tls-key={key}", http=True) as secure:
            self.assertTrue(secure.url.startswith("https://"))
            with self.assertRaises(trl.ProtocolError) as untrusted:
                trl.connect(secure.url, token=secure.token)
            self.assertIn("tls=", untrusted.exception.hint)
            context = ssl.create_default_context(cafile=cert)
            with trl.connect(secure.url, token=secure.token, tls=context) as client, client.session() as s:
                self.assertEqual(s.run("echo hi").stdout, "hi\n")
                self.assertEqual(s.stream("head -c 3000000 /dev/urandom").wait().stdout_bytes, 3_000_000)
                with client.watch() as watch:
                    s.run("true")
                    self.assertEqual(next(watch)["state"], "running")

            async def with_asyncio() -> None:
                async with trl.aio.connect(secure.url, token=secure.token, tls=context) as client:
                    async with client.session() as s:
                        result = await s.stream("head -c 3000000 /dev/urandom").wait()
                        self.assertEqual(result.stdout_bytes, 3_000_000)

            asyncio.run(with_asyncio())

    def test_not_a_daemon(self) -> None:
        with trl.connect(daemon.url + "/elsewhere", token=daemon.token) as client:
            with self.assertRaises(trl.TRLError):
                client.ping()


class Values(unittest.TestCase):
    def test_addresses(self) -> None:
        cases = {
            "/a/b": Address("unix", path="/a/b"),
            "unix:/a/b": Address("unix", path="/a/b"),
            "http://h": Address("http", host="h", port=80),
            "https://h/": Address("http", host="h", port=443, tls=True),
            "https://[::1]:7/base/": Address("http", host="::1", port=7, tls=True, path="/base"),
            "stdio:a 'b c'": Address("stdio", argv=("a", "b c")),
        }
        for text, want in cases.items():
            self.assertEqual(parse_address(text), want)
        self.assertEqual(parse_address("http://[::1]:7").authority, "[::1]:7")
        for bad in ("ftp://h", "http://", "stdio:", "http://h?x=1", "http://user@h"):
            with self.assertRaises(ValueError):
                parse_address(bad)
        of_user = "/run/trl/trl.sock" if os.geteuid() == 0 else "/home/a/.local/state/trl/trl.sock"
        for variables, path in (
            ({"TRL_SOCKET": "/x"}, "/x"),
            ({"XDG_RUNTIME_DIR": "/run/user/1"}, "/run/user/1/trl/trl.sock"),
            ({"HOME": "/home/a", "XDG_RUNTIME_DIR": "relative"}, of_user),
        ):
            with mock.patch.dict(os.environ, variables, clear=True):
                self.assertEqual(parse_address(None).path, path)

    def test_default_socket_is_that_of_the_daemon(self) -> None:
        with mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": daemon.directory}):
            os.environ.pop("TRL_SOCKET", None)
            told = subprocess.run([binary(), "session", "list"], capture_output=True, text=True)
            self.assertIn(parse_address(None).path, told.stderr)

    def test_bytes(self) -> None:
        for data in (b"", b"text", "é".encode(), b"\xff", b"a\0b", bytes(range(256))):
            self.assertEqual(decode_bytes(*encode_bytes(data)), data)
        self.assertEqual(encode_bytes("a\0b")[1], "base64")
        with self.assertRaises(trl.ProtocolError):
            decode_bytes("x", "rot13")

    def test_milliseconds_round_up(self) -> None:
        for seconds, want in ((None, None), (0, 0), (1, 1000), (0.0001, 1), (1.5, 1500)):
            self.assertEqual(milliseconds(seconds), want)

    def test_chunk_without_next(self) -> None:
        self.assertEqual(Chunk({"type": "exit", "offset": 0}).next, 0)
        self.assertEqual(Chunk({"type": "gap", "offset": 5, "bytes": 7}).next, 12)
        self.assertEqual(Chunk({"type": "stdout", "offset": 5, "data": "é"}).next, 7)

    def test_every_code_has_its_class(self) -> None:
        self.assertEqual(set(_BY_CODE), set(ERROR_NUMBERS))
        for code, kind in _BY_CODE.items():
            self.assertEqual(kind.code, code)
            self.assertIs(getattr(trl, kind.__name__), kind)


class Readme(unittest.TestCase):
    def test_examples_run_as_written(self) -> None:
        examples = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
        wanted = ("bonjour from /usr/lib", "line 3", "stderr two", "hello world", "4711", "notes.txt file 11", "exec.cancel")
        self.assertEqual(len(examples), len(wanted))
        for example, text in zip(examples, wanted):
            environment = dict(os.environ, TRL_SOCKET=daemon.socket, PYTHONPATH=str(ROOT / "src"))
            argv = [sys.executable, "-W", "error", "-c", example]
            ran = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""), example)
            self.assertIn(text, ran.stdout)


if __name__ == "__main__":
    unittest.main()
