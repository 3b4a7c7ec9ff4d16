// Pseudo-random bytes from a seed. As a program it writes them to stdout: node
// bytes.mjs SEED COUNT.

import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** Returns a seeded generator of numbers from 0 to 1 (xorshift32). */
export function random(seed) {
  let x = seed >>> 0 || 1;
  const next = () => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return (x >>> 0) / 2 ** 32;
  };
  for (let i = 0; i < 16; i++) {
    next(); // with a small seed the first numbers are small too
  }
  return next;
}

/** Yields `count` bytes in pieces. */
export function* bytes(seed, count) {
  const next = random(seed);
  for (let left = count; left > 0; ) {
    const words = new Uint32Array(16 << 10);
    for (let i = 0; i < words.length; i++) {
      words[i] = next() * 2 ** 32;
    }
    const piece = Buffer.from(words.buffer).subarray(0, left);
    left -= piece.length;
    yield piece;
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const piece of bytes(Number(process.argv[2]), Number(process.argv[3]))) {
    if (!process.stdout.write(piece)) {
      await once(process.stdout, "drain");
    }
  }
}
