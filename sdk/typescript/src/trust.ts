// Checks the owner of a socket.
//
// The process that listens at a path receives commands, environments and secrets.
// Node can't ask the kernel whose process listens, so this checks the files: the
// socket, its directory and each directory above must belong to this user or to
// root, and no one else must be able to write to its directory. Then no one else
// can have made the socket. For root, they may also belong to the user who owns
// the directory of the socket.

import { lstat, readFile, readlink, realpath } from "node:fs/promises";
import type { Stats } from "node:fs";
import * as posix from "node:path/posix";

import { ForbiddenError } from "./errors.js";

const maxLinks = 40; // as in the kernel
const unmapped = 65534; // stands for all users that a user namespace does not map
const firstPerson = 1000;
const sticky = 0o1000;

/** Refuses a path at which another user could have made the socket. */
export async function trustSocket(path: string): Promise<void> {
  const caller = process.geteuid?.();
  if (caller === undefined || path.startsWith("\0")) {
    return; // no users, or no directory
  }
  const dir = posix.dirname(await realpath(path));
  const found = await lstat(dir);
  const user = caller === 0 ? found.uid : caller;
  await walk(path, user);
  await walk(dir, user);
  if ((found.mode & 0o022) !== 0) {
    throw refusal(`others may write to ${dir}`);
  }
}

/** Follows a path component by component, and refuses it if another user could change its target. */
async function walk(path: string, user: number): Promise<void> {
  const left = (path.startsWith("/") ? path : `${process.cwd()}/${path}`).split("/");
  let at = "/";
  let found = await lstat(at);
  for (let links = 0; ; ) {
    await checkOwner(at, found, user);
    while (left[0] === "" || left[0] === ".") {
      left.shift();
    }
    const name = left.shift();
    if (name === undefined) {
      return;
    }
    if (found.isDirectory() && openToOthers(found) && (found.mode & sticky) === 0) {
      throw refusal(`others may write to ${at}, which is above ${path}`);
    }
    const next = posix.join(at, name);
    found = await lstat(next);
    if (!found.isSymbolicLink()) {
      at = next;
      continue;
    }
    await checkOwner(next, found, user);
    if (++links > maxLinks) {
      throw refusal(`${path} has too many symbolic links`);
    }
    const target = await readlink(next);
    left.unshift(...target.split("/"));
    if (target.startsWith("/")) {
      at = "/";
    }
    found = await lstat(at);
  }
}

async function checkOwner(path: string, found: Stats, user: number): Promise<void> {
  if (found.uid !== 0 && found.uid !== user && !(found.uid === unmapped && !(await mapsNobody()))) {
    throw refusal(`${path} belongs to another user (uid ${found.uid})`);
  }
}

/** Whether uid 65534 is a real user here, and not the placeholder for unmapped users. */
async function mapsNobody(): Promise<boolean> {
  let table: string;
  try {
    table = await readFile("/proc/self/uid_map", "utf8");
  } catch {
    return true;
  }
  return table.split("\n").some((line) => {
    const [first = NaN, , count = NaN] = line.trim().split(/\s+/).map(Number);
    return first <= unmapped && unmapped < first + count;
  });
}

/** Whether other users can write. A group with the same number as its user is private to that user. */
function openToOthers(found: Stats): boolean {
  const own = found.uid === found.gid && found.uid >= firstPerson && found.uid !== unmapped;
  return (found.mode & 0o002) !== 0 || ((found.mode & 0o020) !== 0 && !own);
}

function refusal(message: string): ForbiddenError {
  return new ForbiddenError("FORBIDDEN", message, "choose a socket in your own directory");
}
