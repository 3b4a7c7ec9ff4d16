"""The build backend (PEP 517): a pure Python wheel is a zip file with three more files.

It is in the tree so that ``pip install .`` needs neither the network nor any package. The same sources produce the same
bytes: files are sorted, stored uncompressed (compressors differ) and dated by ``SOURCE_DATE_EPOCH`` or not at all.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import re
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "trl_client"

# The files of an sdist besides the package: enough to build and test it.
SDIST = ("LICENSE", "README.md", "pyproject.toml", "_build/build_wheel.py", "tests")


def project() -> Dict[str, Any]:
    """Reads ``[project]`` of pyproject.toml. Python 3.9 has no TOML parser, but the values there are JSON too."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    table = text.split("[project]\n", 1)[1].split("\n[", 1)[0]
    found: Dict[str, Any] = {}
    for line in table.splitlines():
        if line.strip():
            key, value = line.split("=", 1)
            found[key.strip()] = json.loads(value)
    match = re.search(r'^__version__ = "([^"]+)"$', (PACKAGE / "__init__.py").read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise ValueError("__version__ is not in __init__.py")
    found["version"] = match.group(1)
    return found


def names() -> Tuple[str, str]:
    """Returns the stem of every built file, and the metadata directory of a wheel."""
    about = project()
    stem = f"{about['name'].replace('-', '_')}-{about['version']}"
    return stem, f"{stem}.dist-info"


def metadata() -> bytes:
    about = project()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {about['name']}",
        f"Version: {about['version']}",
        f"Summary: {about['description']}",
        "Home-page: https://github.com/terminal-runtime/trl",
        f"License: {about['license']}",
        f"Keywords: {','.join(about['keywords'])}",
        *(f"Classifier: {name}" for name in about["classifiers"]),
        f"Requires-Python: {about['requires-python']}",
        "Description-Content-Type: text/markdown",
        "",
        (ROOT / about["readme"]).read_text("utf-8"),
    ]
    return "\n".join(lines).encode()


WHEEL = b"Wheel-Version: 1.0\nGenerator: trl-client\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def date() -> Tuple[int, int, int, int, int, int]:
    """Returns the date of every file. A zip file cannot represent dates before 1980."""
    epoch = max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)
    moment = time.gmtime(epoch)
    return moment.tm_year, moment.tm_mon, moment.tm_mday, moment.tm_hour, moment.tm_min, moment.tm_sec


def below(directory: Path) -> List[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def write_wheel(directory: str, files: Dict[str, bytes]) -> str:
    stem, info = names()
    files = dict(files)
    files[f"{info}/METADATA"] = metadata()
    files[f"{info}/WHEEL"] = WHEEL
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    filename = f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(Path(directory) / filename, "w", zipfile.ZIP_STORED) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, date())
            entry.external_attr = 0o100644 << 16
            wheel.writestr(entry, data)
    return filename


# --- the hooks of PEP 517 and PEP 660 ---


def build_wheel(
    wheel_directory: str, config_settings: Optional[Dict[str, Any]] = None, metadata_directory: Optional[str] = None
) -> str:
    return write_wheel(wheel_directory, {str(p.relative_to(SOURCE)): p.read_bytes() for p in below(PACKAGE)})


def build_editable(
    wheel_directory: str, config_settings: Optional[Dict[str, Any]] = None, metadata_directory: Optional[str] = None
) -> str:
    return write_wheel(wheel_directory, {"trl_client.pth": f"{SOURCE}\n".encode()})


def build_sdist(sdist_directory: str, config_settings: Optional[Dict[str, Any]] = None) -> str:
    stem, _ = names()
    files = {f"{stem}/PKG-INFO": metadata()}
    for path in [PACKAGE, *(ROOT / name for name in SDIST)]:
        for file in below(path) if path.is_dir() else [path]:
            files[f"{stem}/{file.relative_to(ROOT)}"] = file.read_bytes()
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    filename = f"{stem}.tar.gz"
    with open(Path(sdist_directory) / filename, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        packed.write(plain.getvalue())
    return filename
