// Splits the buffers of a socket into lines.

const newline = 0x0a;

/**
 * Splits bytes into lines. The pieces of a line are kept as they arrive and
 * joined once, when its end has arrived, so a long line costs no more per byte
 * than a short one. A last line without a newline is never returned: its writer
 * was cut off.
 */
export class LineSplitter {
  #pieces: Buffer[] = [];
  #size = 0;

  /** Calls `line` for each line that ends in `data`, without its newline. */
  push(data: Buffer, line: (text: string, bytes: number) => void): void {
    let start = 0;
    for (;;) {
      const end = data.indexOf(newline, start);
      if (end < 0) {
        break;
      }
      if (this.#pieces.length === 0) {
        line(data.toString("utf8", start, end), end - start);
      } else {
        this.#pieces.push(data.subarray(start, end));
        const whole = Buffer.concat(this.#pieces, this.#size + end - start);
        this.#pieces = [];
        this.#size = 0;
        line(whole.toString("utf8"), whole.length);
      }
      start = end + 1;
    }
    if (start < data.length) {
      this.#pieces.push(start === 0 ? data : data.subarray(start));
      this.#size += data.length - start;
    }
  }
}
