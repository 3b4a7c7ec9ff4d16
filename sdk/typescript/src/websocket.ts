// A WebSocket as a stream of lines: each message is a line. It implements only what
// the contract needs: text messages, fragmented or not, and control frames.

import { createHash, randomBytes } from "node:crypto";
import { Duplex } from "node:stream";

import { ProtocolError } from "./errors.js";

const opcode = { continuation: 0, text: 1, close: 8, ping: 9, pong: 10 } as const;

/** The limit of a frame: the daemon's largest answer, with some room. */
const maxFrameBytes = 64 << 20;

/** Returns the headers of an upgrade request, and the accept value that the server must answer. */
export function handshake(): { headers: Record<string, string>; accept: string } {
  const key = randomBytes(16).toString("base64");
  // The GUID is fixed by RFC 6455, section 1.3.
  const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  return { headers: { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13", "sec-websocket-key": key }, accept };
}

/** The socket under a WebSocket, after the handshake. */
interface UnderlyingSocket extends Duplex {
  ref?(): unknown;
  unref?(): unknown;
}

export class WebSocketLine extends Duplex {
  readonly #socket: UnderlyingSocket;
  #pieces: Buffer[] = [];
  #size = 0;

  /** `head` is the data after the handshake's answer. */
  constructor(socket: UnderlyingSocket, head: Buffer) {
    super({ decodeStrings: true });
    this.#socket = socket;
    if (head.length > 0) {
      socket.unshift(head);
    }
    socket.on("data", (data: Buffer) => this.#received(data));
    socket.on("error", (error) => this.destroy(error));
    socket.on("close", () => this.destroy());
    socket.pause(); // until it is read
  }

  ref(): void {
    this.#socket.ref?.();
  }

  unref(): void {
    this.#socket.unref?.();
  }

  override _read(): void {
    this.#socket.resume();
  }

  /** Each write is one line, and becomes one message. */
  override _write(line: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#send(opcode.text, line.subarray(0, -1), done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#socket.destroy();
    done(error);
  }

  #received(data: Buffer): void {
    this.#pieces.push(data);
    this.#size += data.length;
    for (;;) {
      const size = this.#frameSize();
      if (size === undefined || this.#size < size.head + size.body) {
        return;
      }
      const all = this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces, this.#size);
      const rest = all.subarray(size.head + size.body);
      this.#pieces = rest.length > 0 ? [rest] : [];
      this.#size = rest.length;
      this.#frame(all[0]!, all.subarray(size.head, size.head + size.body));
    }
  }

  /** Returns the size of the next frame, once enough of it has arrived. */
  #frameSize(): { head: number; body: number } | undefined {
    const most = 10; // bytes needed to know it
    let start = this.#pieces[0];
    if (start === undefined) {
      return undefined;
    }
    if (start.length < most && this.#pieces.length > 1) {
      start = Buffer.concat(this.#pieces, this.#size);
      this.#pieces = [start];
    }
    if (start.length < 2) {
      return undefined;
    }
    const short = start[1]!; // a server does not mask: the high bit is not set
    let size = { head: 2, body: short };
    if (short === 126) {
      if (start.length < 4) {
        return undefined;
      }
      size = { head: 4, body: start.readUInt16BE(2) };
    } else if (short === 127) {
      if (start.length < most) {
        return undefined;
      }
      size = { head: most, body: Number(start.readBigUInt64BE(2)) };
    }
    if (short > 127 || size.body > maxFrameBytes) {
      this.destroy(new ProtocolError("invalid WebSocket frame"));
      return undefined;
    }
    return size;
  }

  #frame(first: number, body: Buffer): void {
    const final = (first & 0x80) !== 0;
    switch (first & 0x0f) {
      case opcode.text:
      case opcode.continuation: {
        const more = this.push(body);
        if (final && !this.push("\n") && !more) {
          this.#socket.pause();
        }
        break;
      }
      case opcode.ping:
        this.#send(opcode.pong, body);
        break;
      case opcode.close:
        this.#send(opcode.close, body.subarray(0, 2));
        this.destroy();
        break;
    }
  }

  #send(code: number, body: Buffer, done?: (error?: Error | null) => void): void {
    const mask = randomBytes(4);
    const head = Buffer.alloc(14);
    head[0] = 0x80 | code;
    let at = 2;
    if (body.length < 126) {
      head[1] = 0x80 | body.length;
    } else if (body.length < 1 << 16) {
      head[1] = 0x80 | 126;
      head.writeUInt16BE(body.length, 2);
      at = 4;
    } else {
      head[1] = 0x80 | 127;
      head.writeBigUInt64BE(BigInt(body.length), 2);
      at = 10;
    }
    mask.copy(head, at);
    const masked = Buffer.allocUnsafe(body.length);
    for (let i = 0; i < body.length; i++) {
      masked[i] = body[i]! ^ mask[i & 3]!;
    }
    this.#socket.write(Buffer.concat([head.subarray(0, at + 4), masked]), done);
  }
}
