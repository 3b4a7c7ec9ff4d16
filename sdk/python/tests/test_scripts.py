"""The scripts that both SDKs run."""

from __future__ import annotations

import re
import unittest

from tests.support import ROOT
from trl_client import _scripts as scripts


class Scripts(unittest.TestCase):
    def test_typescript_has_the_same(self) -> None:
        source = (ROOT.parent / "typescript" / "src" / "scripts.ts").read_text()
        found = re.findall(r"^export const (\w+) = (?:String\.raw)?`\n?(.*?)`;$", source, re.DOTALL | re.MULTILINE)
        theirs = {name.upper(): text.replace("\\${", "${").replace("\\\\0", "\\0").strip() for name, text in found}
        mine = {name: text.strip() for name, text in vars(scripts).items() if name.isupper()}
        self.assertEqual(theirs, mine)


if __name__ == "__main__":
    unittest.main()
