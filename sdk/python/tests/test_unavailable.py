"""What the clients repeat when a daemon says that the place of a session is out of reach."""

from __future__ import annotations

import asyncio
import json
import pathlib
import tempfile
import unittest
from typing import Any, Dict, List, Optional, Tuple

from tests.support import check_unraised, trl
from trl_client import aio


def tearDownModule() -> None:
    check_unraised()


class Unavailable(unittest.TestCase):
    def calls(self, sent: Optional[str], method: str, **params: Any) -> int:
        """Returns how often a method is called whose first call is answered with RUNTIME_UNAVAILABLE."""
        away = {"code": "RUNTIME_UNAVAILABLE", "retry_after_ms": 1, **({"sent": sent} if sent else {})}
        return asyncio.run(self._calls([away], method, params))[0]

    async def _calls(
        self, answers: List[Dict[str, Any]], method: str, params: Dict[str, Any]
    ) -> Tuple[int, Optional[trl.RuntimeUnavailable]]:
        """Returns how often a method is called whose first calls are answered with these errors, and its own error."""
        calls = 0
        failure: Optional[trl.RuntimeUnavailable] = None
        serving: List["asyncio.Future[None]"] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal calls
            ended: "asyncio.Future[None]" = asyncio.get_running_loop().create_future()
            serving.append(ended)
            while line := await reader.readline():
                request = json.loads(line)
                answer: Dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"], "result": {"protocol": 1}}
                if request["method"] == method:
                    calls += 1
                    if calls <= len(answers):
                        del answer["result"]
                        answer["error"] = {"code": -32013, "message": "away", "data": answers[calls - 1]}
                writer.write(json.dumps(answer).encode() + b"\n")
            writer.close()
            await writer.wait_closed()
            ended.set_result(None)

        with tempfile.TemporaryDirectory() as directory:
            path = str(pathlib.Path(directory) / "d.sock")
            server = await asyncio.start_unix_server(serve, path)
            try:
                async with aio.connect(path) as client:
                    try:
                        await client.call(method, **params)
                    except trl.RuntimeUnavailable as error:
                        self.assertEqual(calls, len(answers))
                        failure = error
            finally:
                server.close()
                await server.wait_closed()
                await asyncio.gather(*serving)
        return calls, failure

    def test_a_lost_attempt_is_not_forgotten(self) -> None:
        away = {"code": "RUNTIME_UNAVAILABLE", "runtime": "ssh:box"}
        answers = [{**away, "retry_after_ms": 1, "sent": "maybe"}, {**away, "sent": "no"}]
        run = {"session_id": "s-1", "command": "x", "key": "k"}
        calls, failure = asyncio.run(self._calls(answers, "exec.run", run))
        self.assertEqual(calls, 2)
        assert failure is not None
        self.assertEqual(failure.details["sent"], "maybe")

    def test_a_call_that_may_have_been_executed_is_repeated_only_if_that_is_safe(self) -> None:
        run = {"session_id": "s-1", "command": "x"}
        for sent, key, want in (("maybe", None, 1), ("maybe", "k", 2), ("no", None, 2), ("no", "k", 2), (None, None, 2)):
            with self.subTest(sent=sent, key=key):
                self.assertEqual(self.calls(sent, "exec.run", **run, **({"key": key} if key else {})), want)
        self.assertEqual(self.calls("maybe", "session.list"), 2)
        self.assertEqual(self.calls("maybe", "exec.signal", exec_id="e-1", signal="INT"), 1)
