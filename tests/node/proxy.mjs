/** A way to the daemon that the test can cut: it forwards bytes, counts connections, and hangs up when told to. */

import { once } from "node:events";
import { rmSync } from "node:fs";
import { connect, createServer } from "node:net";

export class Proxy {
  connections = 0;
  /** Everything that clients have sent. */
  asked = "";
  /** How many answers are still to be lost: the daemon gets the request, the client gets nothing. */
  losing = 0;
  /** Whether answers are kept back: the daemon seems to think. */
  mute = false;
  #pairs = new Set();

  constructor(path, target) {
    this.path = path;
    this.server = createServer((client) => {
      this.connections += 1;
      const daemon = connect(target);
      const pair = [client, daemon];
      this.#pairs.add(pair);
      client.on("data", (chunk) => {
        this.asked += chunk;
        daemon.write(chunk);
      });
      daemon.on("data", (chunk) => {
        if (this.mute) return;
        if (this.losing > 0) {
          this.losing -= 1;
          client.destroy();
        } else {
          client.write(chunk);
        }
      });
      for (const [one, other] of [pair, [...pair].reverse()]) {
        one.on("error", () => {});
        one.on("close", () => {
          other.destroy();
          this.#pairs.delete(pair);
        });
      }
    });
  }

  /** Connections that are open now. */
  get open() {
    return this.#pairs.size;
  }

  async listen() {
    rmSync(this.path, { force: true });
    this.server.listen(this.path);
    await once(this.server, "listening");
    return this;
  }

  /** Break every connection, as a daemon does that is killed. */
  cut() {
    for (const pair of this.#pairs) for (const socket of pair) socket.destroy();
  }

  async close() {
    if (!this.server.listening) return;
    this.server.close();
    this.cut();
    await once(this.server, "close");
  }
}
