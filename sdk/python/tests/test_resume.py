"""Streams through a proxy that cuts connections."""

from __future__ import annotations

import unittest

from tests.exactly_once import exactly_once


class ExactlyOnce(unittest.TestCase):
    def test_sixty_cuts(self) -> None:
        for transport in ("unix", "http"):
            for use_asyncio in (False, True):
                with self.subTest(transport=transport, asyncio=use_asyncio):
                    exactly_once(transport, 16 << 20, 60, seed=42, use_asyncio=use_asyncio)


if __name__ == "__main__":
    unittest.main()
