"""Checks the owner of a socket.

The process that listens at a path receives commands, environments and secrets. So a client only talks to a daemon of
its own user or of root. A client that runs as root also talks to the daemon of the user who owns the socket's
directory, if no other user can write there.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from typing import List

from ._errors import Forbidden

_MAX_LINKS = 40  # as in the kernel
_UNMAPPED = 65534  # stands for all users that a user namespace does not map
_FIRST_PERSON = 1000


def server(path: str) -> int:
    """Returns who besides root may serve at a path. Refuses it if another user could have made the socket."""
    user = os.geteuid()
    if path.startswith(("@", "\0")):  # an abstract address has no directory
        return user
    real = os.path.realpath(path)
    if user == 0:
        user = os.stat(os.path.dirname(real)).st_uid
    _walk(path, user)
    _walk(os.path.dirname(real), user)
    found = os.stat(os.path.dirname(real))
    if found.st_mode & 0o022:
        raise _refusal(f"others may write to {os.path.dirname(real)}")
    return user


def reach(sock: socket.socket, path: str, user: int) -> None:
    """Refuses a connection to a process of another user. Accepts it if the kernel does not tell whose process it is."""
    if hasattr(socket, "SO_PEERCRED"):
        _, uid, _ = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")))
    elif sys.platform == "darwin":
        # SOL_LOCAL, LOCAL_PEERCRED: struct xucred begins with its version and the user.
        _, uid = struct.unpack_from("II", sock.getsockopt(0, 1, 128))
    else:
        return
    if uid not in (0, user, os.geteuid()):
        raise _refusal(f"the process that listens on {path} belongs to another user (uid {uid}); nothing was sent to it")


def _walk(path: str, user: int) -> None:
    """Follows a path component by component, and refuses it if another user could change its target."""
    left: List[str] = os.path.join(os.getcwd(), path).split("/")
    at, links = "/", 0
    found = os.lstat(at)
    while True:
        _check_owner(at, found, user)
        while left and left[0] in ("", "."):
            del left[0]
        if not left:
            return
        if stat.S_ISDIR(found.st_mode) and _open_to_others(found) and not found.st_mode & stat.S_ISVTX:
            raise _refusal(f"others may write to {at}, which is above {path}")
        following = os.path.normpath(os.path.join(at, left.pop(0)))
        found = os.lstat(following)
        if not stat.S_ISLNK(found.st_mode):
            at = following
            continue
        _check_owner(following, found, user)
        links += 1
        if links > _MAX_LINKS:
            raise _refusal(f"{path} has too many symbolic links")
        target = os.readlink(following)
        left = target.split("/") + left
        if os.path.isabs(target):
            at = "/"
        found = os.lstat(at)


def _check_owner(path: str, found: os.stat_result, user: int) -> None:
    owner = found.st_uid
    if owner in (0, user) or owner == _UNMAPPED and not _maps_nobody():
        return
    raise _refusal(f"{path} belongs to another user (uid {owner})")


def _maps_nobody() -> bool:
    """Reports whether uid 65534 is a real user here, and not the placeholder for unmapped users."""
    try:
        with open("/proc/self/uid_map") as table:
            rows = [[int(field) for field in line.split()] for line in table]
    except OSError:
        return True
    return any(first <= _UNMAPPED < first + count for first, _, count in rows)


def _open_to_others(found: os.stat_result) -> bool:
    """Reports whether other users can write. A group with the same number as its user is private to that user."""
    private = found.st_uid == found.st_gid and found.st_uid >= _FIRST_PERSON and found.st_uid != _UNMAPPED
    return bool(found.st_mode & 0o002 or found.st_mode & 0o020 and not private)


def _refusal(message: str) -> Forbidden:
    return Forbidden(message, hint="choose a socket in your own directory")
