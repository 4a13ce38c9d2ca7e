/**
 * A client of amnesiad for Node: one file, no dependencies, JSON over the daemon's Unix socket.
 *
 *     import { Client } from "./amnesiad.mjs";
 *     const memory = new Client({ workspace: "/src/app" });
 *     await memory.remember({ content: "the staging database is read-only", ttl_ms: "7d" });
 *     memory.close();
 *
 * Each verb of the API is a method that takes the request's fields under their own names and resolves to the answer;
 * `call(verb, body)` asks for any verb. What the daemon refuses rejects with its error (`code`, `hint`, `field`, `rule`,
 * `choices`), a missing daemon with `DaemonUnreachable`, a silent one with `Deadline`.
 *
 * A request is repeated once when the connection breaks under it. That is safe: every write carries a `request_id`, and
 * the daemon answers a repeated one from its record. Only imports and hook payloads are never repeated.
 *
 * The types beside this file are made of the API's own document.
 */

import { randomUUID } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { Agent, request } from "node:http";
import { homedir } from "node:os";
import { isAbsolute, join, resolve } from "node:path";

/** A little longer than the daemon's own deadline, so that its answer about that still arrives. */
const DEFAULT_TIMEOUT_MS = 35_000;
/** One request and one repeat: a second broken connection in a row is no accident. */
const ATTEMPTS = 2;
/** The daemon takes no longer request, and sends no longer line. */
const MAX_BYTES = 1024 * 1024;
/** A whole answer; the largest page of notes is far below. */
const MAX_ANSWER_BYTES = 8 * MAX_BYTES;
/** The longest wait that a timer of Node can have; longer ones end at once. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;
/** The longest path that a Unix socket can have: `sun_path` of the platform less its closing NUL. */
const SUN_PATH_BYTES = process.platform === "darwin" ? 103 : 107;
/** A feed is never silent for longer: the daemon sends a comment every 15 s. */
const FEED_SILENCE_MS = 45_000;
/** Waits between attempts to reach a feed again, in order; the last one repeats. */
const FEED_WAITS_MS = [100, 300, 1_000, 3_000, 10_000];

// wire: begin (generated: python -m tests.node_wire)
/** The verbs that a body alone asks for. */
export const VERBS = Object.freeze([
  "remember", "recall", "inject", "preview", "fire", "why-not", "list", "inspect", "history", "forget", "revoke",
  "flag", "supersede", "reinstate", "pin", "unpin", "renew", "done", "promote", "edit", "restore", "undo", "mirror",
  "status", "audit", "ledger", "exposure", "policy", "events", "batch", "settle", "scrub", "verify", "rebuild",
  "check", "owners", "dead", "workspaces",
]);
/** Those of them that take a `request_id`. */
export const WRITES = Object.freeze([
  "remember", "forget", "revoke", "flag", "supersede", "reinstate", "pin", "unpin", "renew", "done", "promote",
  "edit", "restore", "undo", "mirror", "policy", "owners", "dead", "workspaces",
]);
/** Those that may be asked without a workspace. */
const ANYWHERE = Object.freeze([
  "events", "dead", "workspaces",
]);
// wire: end

// -- errors ------------------------------------------------------------------------------------------------------------

/** The base of everything that this client rejects with, but for the reason of a signal that was aborted. */
export class AmnesiaError extends Error {
  static code = "internal";

  /**
   * @param {string} message
   * @param {{hint?: string, field?: string | null, rule?: string | null, choices?: readonly string[], cause?: unknown}} [more]
   */
  constructor(message, more = {}) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause });
    this.name = new.target.name;
    /** What kind of error it is, for programs. @type {string} */
    this.code = new.target.code;
    /** What to do about it. @type {string} */
    this.hint = more.hint ?? "";
    /** The field of the request that is meant. @type {string | null} */
    this.field = more.field ?? null;
    /** The rule that said no. @type {string | null} */
    this.rule = more.rule ?? null;
    /** What an ambiguous address could have meant. @type {readonly string[]} */
    this.choices = more.choices ?? [];
  }
}

/** A value is malformed or out of range; `field` names it. */
export class Invalid extends AmnesiaError { static code = "invalid"; }
/** This caller may not do this. */
export class Forbidden extends AmnesiaError { static code = "forbidden"; }
/** Nothing by that address is visible to this caller. */
export class NotFound extends AmnesiaError { static code = "not_found"; }
/** An address matches several notes: `choices`. */
export class Ambiguous extends AmnesiaError { static code = "ambiguous"; }
/** Somebody else changed it first, or a request id was reused. */
export class Conflict extends AmnesiaError { static code = "conflict"; }
/** A request or a value exceeds its limit. */
export class TooLarge extends AmnesiaError { static code = "too_large"; }
/** A rule of the domain said no: `rule`. */
export class Refused extends AmnesiaError { static code = "refused"; }
/** The workspace is full. */
export class StoreFull extends AmnesiaError { static code = "store_full"; }
/** The store does not answer. */
export class StoreUnavailable extends AmnesiaError { static code = "store_unavailable"; }
/** More requests in flight than the daemon accepts. */
export class Busy extends AmnesiaError { static code = "busy"; }
/** There was no answer in time; a write may have landed. */
export class Deadline extends AmnesiaError { static code = "deadline"; }
/** A defect of the daemon. */
export class Bug extends AmnesiaError { static code = "internal"; }
/** Nothing answers on the socket, or it hung up before it answered. */
export class DaemonUnreachable extends AmnesiaError { static code = "unreachable"; }

/** @type {ReadonlyMap<unknown, typeof AmnesiaError>} */
const BY_CODE = new Map(
  [Invalid, Forbidden, NotFound, Ambiguous, Conflict, TooLarge, Refused, StoreFull, StoreUnavailable, Busy, Deadline, Bug]
    .map((kind) => [kind.code, kind]),
);

/** Failures that pass by themselves, after which a feed goes on. @type {readonly (typeof AmnesiaError)[]} */
const AWAY = [DaemonUnreachable, StoreUnavailable, Busy, Deadline];

// -- the client --------------------------------------------------------------------------------------------------------

/** @typedef {{signal?: AbortSignal, timeoutMs?: number}} CallOptions */
/** @typedef {Record<string, unknown>} Body */

/** A connection to the daemon for one caller in one workspace. Nothing is sent before the first request. */
export class Client {
  /** @type {{agent: Agent, streams: Set<{destroy: () => unknown}>, closings: number}} */
  #wires;
  /** @param {import("./amnesiad.d.mts").ClientOptions & {shared?: Client}} [options] */
  constructor(options = {}) {
    const { shared } = options;
    /** Where the daemon listens. @type {string} */
    this.socket = shared?.socket ?? options.socket ?? daemonSocket(process.env);
    /** The workspace of requests that name none. @type {string | undefined} */
    this.workspace = options.workspace || process.env.AMNESIA_WORKSPACE || undefined;
    /** Who asks, where a request does not say. */
    this.caller = callerOf({
      session: options.session || process.env.AMNESIA_SESSION,
      agent: options.agent || process.env.AMNESIA_AGENT,
      team: options.team || process.env.AMNESIA_TEAM,
      agent_kind: options.agent_kind || process.env.AMNESIA_AGENT_KIND,
      role: options.role,
      on_behalf: options.on_behalf,
    });
    /** How long an answer may take, in milliseconds, the wait for the connection included. @type {number} */
    this.timeoutMs = waiting(options.timeoutMs ?? shared?.timeoutMs ?? DEFAULT_TIMEOUT_MS);
    // Kept connections, one unless told otherwise: requests queue for them, in the order in which they were made. Exports,
    // imports and feeds have one of their own each.
    const maxSockets = options.connections ?? 1;
    this.#wires = shared ? shared.#wires : { agent: new Agent({ keepAlive: true, maxSockets }), streams: new Set(), closings: 0 };
  }

  /**
   * A client for another caller over the same connection. Nothing is taken over from this one's caller.
   * @param {import("./amnesiad.d.mts").Who} who
   * @returns {Client}
   */
  as(who) {
    const other = new Client(/** @type {{}} */ ({ shared: this }));
    other.workspace = who.workspace ?? this.workspace;
    const { session, agent, team, agent_kind, role, on_behalf } = who;
    other.caller = callerOf({ session, agent, team, agent_kind, role, on_behalf });
    return other;
  }

  /** Close the connections, and those of the clients that share them. What is under way or queued for them is over; a
   * later request opens a new one. */
  close() {
    this.#wires.closings += 1;
    this.#wires.agent.destroy();
    for (const stream of this.#wires.streams) stream.destroy();
  }

  /**
   * The answer to one request.
   * @param {string} verb
   * @param {Body} [body]
   * @param {CallOptions} [options]
   * @returns {Promise<any>}
   */
  async call(verb, body = {}, options = {}) {
    const data = this.#prepare(verb, body);
    return parsed(await this.#attempt(`/v1/${verb}`, data, ATTEMPTS, options));
  }

  /**
   * An agent's own hook payload, answered in that agent's own form. Never repeated.
   * @param {string} agent
   * @param {Body} payload
   * @param {CallOptions & {workspace?: string}} [options]
   * @returns {Promise<Body>}
   */
  async hook(agent, payload, options = {}) {
    const query = options.workspace ? `?${new URLSearchParams({ workspace: options.workspace })}` : "";
    const data = Buffer.from(JSON.stringify(payload));
    return parsed(await this.#attempt(`/v1/hooks/${encodeURIComponent(agent)}${query}`, data, 1, options));
  }

  /**
   * The objects of an export, one at a time, over a connection of its own. `after` resumes behind a `seq`.
   * @param {CallOptions & {after?: string}} [options]
   * @returns {AsyncGenerator<Body, void, void>}
   */
  async *export(options = {}) {
    const data = this.#prepare("export", options.after === undefined ? {} : { after: options.after });
    const { incoming, end } = await this.#open("POST", "/v1/export", data, options);
    try {
      for await (const line of lines(this.socket, incoming, this.#waitOf(options))) if (line) yield parsed(line);
    } catch (failure) {
      throw options.signal?.aborted ? options.signal.reason : failure;
    } finally {
      end();
    }
  }

  /**
   * Send an export's lines, each a JSON object with or without its line break. Never repeated.
   * @param {Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>} source
   * @param {CallOptions & {dry_run?: boolean}} [options]
   * @returns {Promise<any>}
   */
  async importNotes(source, options = {}) {
    const query = this.#query(options.dry_run ? { dry_run: "true" } : {});
    const { incoming, end } = await this.#open("POST", `/v1/import?${query}`, source, options);
    try {
      let text = "";
      for await (const line of lines(this.socket, incoming, this.#waitOf(options))) text += line;
      return parsed(text);
    } catch (failure) {
      throw options.signal?.aborted ? options.signal.reason : failure;
    } finally {
      end();
    }
  }

  /**
   * What happens in the workspace, from now or from behind `after`, a `seq`. When the connection breaks, or the daemon
   * is away for a while, it goes on where it was; it ends with the loop around it, with `signal`, with `close`, or with a
   * refusal. Each connection begins with an item `opened`. With `unref` it keeps no process alive.
   * @param {{after?: string, signal?: AbortSignal, unref?: boolean}} [options]
   * @returns {AsyncGenerator<import("./amnesiad.d.mts").FeedItem, void, void>}
   */
  async *feed(options = {}) {
    const stop = new AbortController();
    const stream = { destroy: () => stop.abort() };
    const signal = options.signal ? AbortSignal.any([stop.signal, options.signal]) : stop.signal;
    this.#wires.streams.add(stream);
    let { after } = options;
    let misses = 0;
    try {
      while (!signal.aborted) {
        try {
          const query = this.#query(after === undefined ? {} : { after });
          const { incoming, end } = await this.#open("GET", `/v1/feed?${query}`, null, { signal, unref: options.unref });
          try {
            misses = 0;
            for await (const item of feedItems(lines(this.socket, incoming, FEED_SILENCE_MS, options.unref))) {
              after = item.seq;
              yield item;
            }
          } finally {
            end();
          }
        } catch (failure) {
          if (signal.aborted) return;
          if (!AWAY.some((kind) => failure instanceof kind)) throw failure;
        }
        const wait = /** @type {number} */ (FEED_WAITS_MS[Math.min(misses++, FEED_WAITS_MS.length - 1)]);
        await pause(wait, signal, options.unref);
      }
    } finally {
      this.#wires.streams.delete(stream);
    }
  }

  /** @param {string} verb @param {Body} body */
  #prepare(verb, body) {
    /** @type {Body} */
    let full;
    if (verb === "events") {
      full = this.#events(body);
    } else {
      full = { ...body };
      if (full.workspace === undefined) {
        if (this.workspace !== undefined) full.workspace = this.workspace;
        else if (!ANYWHERE.includes(verb)) {
          throw new Invalid("no workspace is named", {
            field: "workspace",
            hint: "pass workspace or set AMNESIA_WORKSPACE",
          });
        }
      }
      if (full.caller === undefined && Object.keys(this.caller).length > 0) full.caller = this.caller;
      if (WRITES.includes(verb)) full.request_id ??= randomUUID();
      if (verb === "batch" && Array.isArray(full.requests)) full.requests = full.requests.map(withId);
    }
    const data = Buffer.from(JSON.stringify(full));
    if (data.length > MAX_BYTES) {
      throw new TooLarge(`the request has ${data.length} bytes, the limit is ${MAX_BYTES}`, {
        field: "body",
        hint: "send several requests, or a stream to importNotes",
      });
    }
    return data;
  }

  /** Each event gets an id, by which a repeat is recognized, and the workspace; a single one the caller too.
   * @param {Body} body */
  #events(body) {
    /** @param {unknown} event */
    const filled = (event) =>
      isObject(event)
        ? { id: randomUUID(), ...(this.workspace === undefined ? {} : { workspace: this.workspace }), ...event }
        : event;
    if (Array.isArray(body.events)) return { ...body, events: body.events.map(filled) };
    const { role: _role, on_behalf: _behalf, ...about } = this.caller;
    return /** @type {Body} */ (filled({ ...about, ...body }));
  }

  /** @param {Record<string, string>} fields */
  #query(fields) {
    const named = this.workspace === undefined ? this.caller : { workspace: this.workspace, ...this.caller };
    return new URLSearchParams({ ...named, ...fields }).toString();
  }

  /** @param {CallOptions} options */
  #waitOf(options) {
    return options.timeoutMs === undefined ? this.timeoutMs : waiting(options.timeoutMs);
  }

  /** @param {string} path @param {Buffer} data @param {number} attempts @param {CallOptions} options */
  async #attempt(path, data, attempts, options) {
    const until = Date.now() + this.#waitOf(options);
    const { closings } = this.#wires;
    for (;;) {
      try {
        return await this.#send(path, data, until - Date.now(), options);
      } catch (failure) {
        if (--attempts === 0 || !(failure instanceof HungUp) || this.#wires.closings !== closings) throw failure;
      }
    }
  }

  /**
   * @param {string} path @param {Buffer} data @param {number} leftMs @param {CallOptions} options
   * @returns {Promise<string>}
   */
  #send(path, data, leftMs, options) {
    const timeoutMs = this.#waitOf(options);
    return new Promise((fulfil, reject) => {
      if (options.signal?.aborted) return reject(options.signal.reason);
      const asked = request({
        socketPath: this.socket,
        agent: this.#wires.agent,
        method: "POST",
        path,
        headers: { host: "amnesiad", "content-type": "application/json", "content-length": data.length },
      });
      this.#wires.streams.add(asked);
      /** @param {() => void} outcome */
      const settle = (outcome) => {
        clearTimeout(timer);
        this.#wires.streams.delete(asked);
        options.signal?.removeEventListener("abort", abort);
        outcome();
      };
      /** @param {unknown} failure */
      const fail = (failure) =>
        settle(() => {
          reject(failure);
          asked.destroy(); // its connection is in an unknown state: the next request needs a fresh one
        });
      const abort = () => fail(options.signal?.reason);
      const timer = setTimeout(() => fail(noAnswer(timeoutMs)), Math.max(0, leftMs));
      options.signal?.addEventListener("abort", abort, { once: true });
      asked.on("error", (failure) => fail(broken(this.socket, failure)));
      asked.on("response", (incoming) => {
        /** @type {Buffer[]} */
        const chunks = [];
        let bytes = 0;
        incoming.on("data", (chunk) => {
          chunks.push(chunk);
          bytes += chunk.length;
          if (bytes > MAX_ANSWER_BYTES) fail(new TooLarge(`the answer exceeds ${MAX_ANSWER_BYTES} bytes`, { field: "answer" }));
        });
        incoming.on("error", (failure) => fail(broken(this.socket, failure)));
        incoming.on("end", () => {
          const text = Buffer.concat(chunks).toString();
          settle(() => (incoming.statusCode === 200 ? fulfil(text) : reject(refusal(incoming.statusCode, text))));
        });
      });
      asked.end(data);
    });
  }

  /**
   * Open a stream over a connection of its own: what comes, and how to end it. Rejects with what the daemon refuses with.
   * @param {string} method @param {string} path
   * @param {Buffer | Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array> | null} upload
   * @param {CallOptions & {unref?: boolean | undefined}} options
   * @returns {Promise<{incoming: import("node:http").IncomingMessage, end: () => void}>}
   */
  #open(method, path, upload, options) {
    const timeoutMs = this.#waitOf(options);
    return new Promise((fulfil, reject) => {
      if (options.signal?.aborted) return reject(options.signal.reason);
      const asked = request({
        socketPath: this.socket,
        agent: false,
        method,
        path,
        headers: {
          host: "amnesiad",
          "content-type": "application/json",
          ...(upload === null || upload instanceof Buffer ? { "content-length": upload?.length ?? 0 } : {}),
        },
      });
      this.#wires.streams.add(asked);
      const end = () => {
        clearTimeout(timer);
        options.signal?.removeEventListener("abort", end);
        this.#wires.streams.delete(asked);
        asked.destroy();
      };
      /** @param {unknown} failure */
      const fail = (failure) => {
        reject(options.signal?.aborted ? options.signal.reason : failure);
        end();
      };
      // Each wait is bounded: that for the answer's status starts anew with every piece that the daemon takes, and who
      // reads the answer bounds that for each of its pieces.
      const timer = setTimeout(() => fail(noAnswer(timeoutMs)), timeoutMs);
      if (options.unref) {
        timer.unref();
        asked.on("socket", (socket) => socket.unref());
      }
      options.signal?.addEventListener("abort", end, { once: true });
      asked.on("error", (failure) => fail(broken(this.socket, failure)));
      const closed = () => fail(new HungUp(this.socket));
      asked.on("close", closed);
      asked.on("response", async (incoming) => {
        clearTimeout(timer);
        asked.off("close", closed); // from here on the reader ends it: there may be more to read than is on its way
        if (incoming.statusCode === 200) return fulfil({ incoming, end });
        let text = "";
        try {
          for await (const chunk of incoming) text += chunk;
          fail(refusal(incoming.statusCode, text));
        } catch (failure) {
          fail(broken(this.socket, /** @type {Error} */ (failure)));
        }
      });
      if (upload === null || upload instanceof Buffer) asked.end(upload ?? undefined);
      else void sendLines(asked, /** @type {Iterable<string | Uint8Array>} */ (upload), () => timer.refresh()).catch(fail);
    });
  }
}

for (const verb of VERBS) {
  const name = verb.replace(/-(.)/g, (_, letter) => letter.toUpperCase());
  /** @this {Client} @param {Body} [body] @param {CallOptions} [options] */
  const method = function (body, options) {
    return this.call(verb, body, options);
  };
  Object.defineProperty(method, "name", { value: name });
  Object.defineProperty(Client.prototype, name, { value: method, writable: true, configurable: true });
}

// -- pieces ------------------------------------------------------------------------------------------------------------

/** What is said of a caller, without what is not. @param {Record<string, string | undefined>} said */
function callerOf(said) {
  /** @type {Record<string, string>} */
  const caller = {};
  for (const [name, value] of Object.entries(said)) if (value) caller[name] = value;
  return caller;
}

/** @param {unknown} value @returns {value is Body} */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A request of a batch, with a request id where its verb takes one. What is malformed is for the daemon to refuse.
 * @param {unknown} item */
function withId(item) {
  if (!isObject(item) || !isObject(item.body ?? {}) || !WRITES.includes(String(item.verb))) return item;
  return { ...item, body: { request_id: randomUUID(), .../** @type {Body} */ (item.body ?? {}) } };
}

/** The connection broke before the answer was complete: the one failure after which a request is repeated. */
class HungUp extends DaemonUnreachable {
  /** @param {string} path @param {unknown} [cause] */
  constructor(path, cause) {
    super(`the daemon at ${path} hung up before it answered`, { hint: "it may have been stopped; see its log", cause });
    this.name = "DaemonUnreachable";
  }
}

/** @param {number} timeoutMs */
function noAnswer(timeoutMs) {
  return new Deadline(`the daemon did not answer within ${timeoutMs} ms`, {
    hint: "it may be stuck; see amnesia doctor",
  });
}

/** The error for a socket that cannot be connected to, or for a connection that broke.
 * @param {string} path @param {NodeJS.ErrnoException} failure */
function broken(path, failure) {
  if (failure instanceof AmnesiaError) return failure;
  const bytes = Buffer.byteLength(path);
  if (bytes > SUN_PATH_BYTES) {
    return new DaemonUnreachable(`the socket path ${path} has ${bytes} bytes, the limit is ${SUN_PATH_BYTES}`, {
      field: "socket",
      hint: "set AMNESIA_SOCKET or socket to a shorter path, here and for the daemon",
      cause: failure,
    });
  }
  if (failure.syscall !== "connect") return new HungUp(path, failure);
  if (failure.code === "EACCES" || failure.code === "EPERM") {
    return new DaemonUnreachable(`the socket ${path} belongs to another user`, {
      hint: "run amnesia up as yourself",
      cause: failure,
    });
  }
  const reason = failure.code === "ENOENT" ? "there is no socket" : "nothing answers";
  return new DaemonUnreachable(`${reason} at ${path}`, { hint: "start the daemon with: amnesia up", cause: failure });
}

/** The error that an envelope stands for; an answer that is no envelope is a defect.
 * @param {number | undefined} status @param {string} text */
function refusal(status, text) {
  try {
    const { error } = JSON.parse(text);
    const kind = BY_CODE.get(error.code);
    if (kind) return new kind(String(error.message), error);
  } catch {
    // said below
  }
  return new Bug(`the daemon answered with status ${status} and no error object`, { hint: "see its log" });
}

/** A time to wait, as Node's timers can have it. @param {number} ms */
function waiting(ms) {
  if (!(ms >= 0)) throw new Invalid("a time to wait is no number from 0 on", { field: "timeoutMs", hint: "give milliseconds" });
  return Math.min(ms, MAX_TIMEOUT_MS);
}

/** What an answer says. The parser's own error would quote it. @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Bug("the daemon's answer is not JSON", { hint: "see what listens at the socket" });
  }
}

/** The pieces of an answer. Throws `Deadline` where none comes for so long while it is waited for; a slow reader is no
 * silent daemon.
 * @param {import("node:http").IncomingMessage} incoming @param {number} silenceMs @param {boolean} [unref]
 * @returns {AsyncGenerator<string, void, void>} */
async function* pieces(incoming, silenceMs, unref) {
  /** @type {NodeJS.Timeout | undefined} */
  let timer;
  const wait = () => {
    timer = setTimeout(() => incoming.destroy(noAnswer(silenceMs)), silenceMs);
    if (unref) timer.unref();
  };
  try {
    wait();
    for await (const piece of incoming) {
      clearTimeout(timer);
      yield piece;
      wait();
    }
  } finally {
    clearTimeout(timer);
  }
}

/** The lines of an answer without their ends, empty ones too. Throws where it stops before its end, or falls silent.
 * @param {string} path @param {import("node:http").IncomingMessage} incoming @param {number} silenceMs
 * @param {boolean} [unref] */
async function* lines(path, incoming, silenceMs, unref) {
  incoming.setEncoding("utf8");
  let rest = "";
  try {
    for await (const chunk of pieces(incoming, silenceMs, unref)) {
      const parts = (rest + chunk).split("\n");
      rest = /** @type {string} */ (parts.pop());
      yield* parts;
      if (rest.length > MAX_BYTES) {
        throw new TooLarge(`a line of the answer exceeds ${MAX_BYTES} bytes`, { field: "line" });
      }
    }
  } catch (failure) {
    throw broken(path, /** @type {Error} */ (failure));
  }
  if (rest) yield rest;
}

/** Server-sent events as items; comments are heartbeats and left out.
 * @param {AsyncIterable<string>} source @returns {AsyncGenerator<import("./amnesiad.d.mts").FeedItem>} */
async function* feedItems(source) {
  /** @type {Record<string, string>} */
  let fields = {};
  for await (const line of source) {
    const colon = line.indexOf(":");
    if (colon > 0) {
      fields[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, "");
    } else if (line === "" && fields.data !== undefined) {
      const type = /** @type {import("./amnesiad.d.mts").FeedItem["type"]} */ (fields.event);
      yield { seq: fields.id ?? "", type, data: parsed(fields.data) };
      fields = {};
    }
  }
}

/** @param {import("node:http").ClientRequest} asked @param {Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>} source
 * @param {() => void} progress */
async function sendLines(asked, source, progress) {
  for await (const line of source) {
    if (asked.destroyed) return;
    const text = typeof line === "string" ? line : Buffer.from(line).toString();
    if (!asked.write(text.endsWith("\n") ? text : `${text}\n`)) {
      await new Promise((done) => asked.once("drain", done).once("close", done));
    }
    progress();
  }
  asked.end();
}

/** @param {number} ms @param {AbortSignal} signal @param {boolean} [unref] @returns {Promise<void>} */
function pause(ms, signal, unref) {
  return new Promise((done) => {
    const over = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", over);
      done();
    };
    const timer = setTimeout(over, ms);
    if (unref) timer.unref();
    signal.addEventListener("abort", over, { once: true });
  });
}

// -- where the daemon listens ------------------------------------------------------------------------------------------

/**
 * Where the daemon of this user listens: `AMNESIA_SOCKET`, else what its configuration file says, else the usual place.
 *
 * Of the file, `socket` and `state_dir` are read where they are plain strings on a line of their own.
 * @param {Record<string, string | undefined>} environ
 * @returns {string}
 */
export function daemonSocket(environ) {
  const given = environ.AMNESIA_SOCKET?.trim();
  if (given) return expand(given, environ);
  const file = configured(environ);
  if (file.socket) return resolve(expand(file.socket, environ));
  const named = environ.AMNESIA_STATE_DIR?.trim() || file.state_dir;
  if (named) return join(runtimeDir(environ) ?? join(resolve(expand(named, environ)), "run"), "amnesia.sock");
  const state = userDir(environ, "XDG_STATE_HOME", ".local/state");
  return join(runtimeDir(environ) ?? join(state, "run"), "amnesia.sock");
}

/** @param {Record<string, string | undefined>} environ */
function runtimeDir(environ) {
  const runtime = environ.XDG_RUNTIME_DIR ?? "";
  try {
    // After su or sudo the variable may still name somebody else's directory, or one that no login session made.
    const found = isAbsolute(runtime) ? statSync(runtime) : undefined;
    return found?.isDirectory() && found.uid === process.geteuid?.() ? join(runtime, "amnesia") : undefined;
  } catch {
    return undefined;
  }
}

/** @param {Record<string, string | undefined>} environ @returns {{socket?: string, state_dir?: string}} */
function configured(environ) {
  const path = environ.AMNESIA_CONFIG
    ? expand(environ.AMNESIA_CONFIG, environ)
    : join(userDir(environ, "XDG_CONFIG_HOME", ".config"), "amnesia.toml");
  let text;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    return {};
  }
  const top = text.split(/^\s*\[/m, 1)[0] ?? "";
  return Object.fromEntries(
    [...top.matchAll(/^\s*(socket|state_dir)\s*=\s*(?:"([^"\\]*)"|'([^']*)')\s*(?:#.*)?$/gm)].map(
      ([, name, basic, literal]) => [name, basic ?? literal],
    ),
  );
}

/** @param {Record<string, string | undefined>} environ @param {string} variable @param {string} usual */
function userDir(environ, variable, usual) {
  const base = environ[variable] ?? "";
  const instead = join(environ.HOME ?? homedir(), process.platform === "darwin" ? "Library/Application Support" : usual);
  return join(isAbsolute(base) ? base : instead, "amnesia");
}

/** @param {string} path @param {Record<string, string | undefined>} environ */
function expand(path, environ) {
  return path.replace(/^~(?=\/|$)/, environ.HOME ?? homedir());
}
