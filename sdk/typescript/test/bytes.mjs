// Bytes that look random and are the same for the same seed. As a program it
// writes them: node bytes.mjs SEED COUNT.

import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** A generator of numbers from 0 up to 1, by its seed (xorshift32). */
export function random(seed) {
  let x = seed >>> 0 || 1;
  const next = () => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return (x >>> 0) / 2 ** 32;
  };
  for (let i = 0; i < 16; i++) {
    next(); // of a small seed the first ones are small too
  }
  return next;
}

/** Yields `count` bytes, a piece at a time. */
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
