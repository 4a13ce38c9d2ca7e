/** The JavaScript client against a daemon: `SOCKET` says where it listens, `SCRATCH` where sockets may be made. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import * as amnesia from "../../daemon/amnesiad/bundles/node/amnesiad.mjs";
import { Proxy } from "./proxy.mjs";

const { Client } = amnesia;
const { SOCKET, SCRATCH } = process.env;

let workspace;
let memory;
let serial = 0;

before(() => {
  assert.ok(SOCKET && SCRATCH);
});
beforeEach(() => {
  workspace = `node-${process.version}-${process.pid}-${(serial += 1)}`;
  memory = new Client({ socket: SOCKET, workspace, session: "s1" });
});
after(() => memory.close());

/** A proxy in front of the daemon, gone with the test. */
async function proxied(t) {
  const proxy = await new Proxy(join(SCRATCH, `p${process.pid}-${serial}.sock`), SOCKET).listen();
  t.after(() => proxy.close());
  const client = new Client({ socket: proxy.path, workspace, session: "s1", timeoutMs: 10_000 });
  t.after(() => client.close());
  return { proxy, client };
}

test("A note that is written is found, shown, explained and erased.", async () => {
  const { id, created } = await memory.remember({ content: "the staging database is read-only", ttl_ms: "7d" });
  assert.equal(created, true);
  const { notes } = await memory.recall({ query: "staging database" });
  assert.deepEqual(notes.map((note) => note.id), [id]);
  assert.match((await memory.inject({ budget_tokens: 500 })).text, /read-only/);
  assert.equal((await memory.inspect({ id })).note.content, "the staging database is read-only");
  assert.equal((await memory.list()).notes.length, 1);
  assert.ok((await memory.whyNot({ id })).seq);
  assert.equal((await memory.forget({ id })).forgotten, 1);
  assert.equal((await memory.status()).counts.active, 0);
  assert.equal((await memory.audit()).entries[0].id, id);
});

test("Every verb is a method.", () => {
  for (const verb of amnesia.VERBS) {
    assert.equal(typeof memory[verb.replace(/-(.)/g, (_, letter) => letter.toUpperCase())], "function", verb);
  }
});

test("A refusal is an error of its own kind that says what to do.", async () => {
  await assert.rejects(memory.inspect({ id: "0000000000" }), (error) => {
    assert.ok(error instanceof amnesia.NotFound && error instanceof amnesia.AmnesiaError);
    assert.equal(error.code, "not_found");
    return true;
  });
  await assert.rejects(memory.recall({ limit: 0 }), (error) => {
    assert.ok(error instanceof amnesia.Invalid);
    assert.equal(error.field, "limit");
    return true;
  });
  await assert.rejects(new Client({ socket: SOCKET }).status(), { name: "Invalid", field: "workspace" });
  await assert.rejects(memory.remember({ content: "x".repeat(1024 * 1024) }), { name: "TooLarge" });
});

test("A write whose answer is lost is repeated, and lands once.", async (t) => {
  const { proxy, client } = await proxied(t);
  await client.status();
  proxy.losing = 1;
  const { created } = await client.remember({ content: "written once" });
  assert.equal(created, true);
  assert.equal((await memory.list()).notes.length, 1);
  const ids = [...proxy.asked.matchAll(/"request_id":"([^"]+)"/g)].map((match) => match[1]);
  assert.equal(ids.length, 2);
  assert.equal(ids[0], ids[1]);
});

test("A connection that breaks twice in a row is an error, and the next request gets a new one.", async (t) => {
  const { proxy, client } = await proxied(t);
  proxy.losing = 2;
  await assert.rejects(client.remember({ content: "twice" }), { name: "DaemonUnreachable", code: "unreachable" });
  assert.equal((await client.status()).counts.active, 1);
});

test("An idle connection that the daemon closed meanwhile costs nothing.", async (t) => {
  const { proxy, client } = await proxied(t);
  await client.status();
  proxy.cut();
  await client.status();
});

test("Many requests at once share one connection, also those of other callers.", async (t) => {
  const { proxy, client } = await proxied(t);
  const other = client.as({ session: "s2" });
  assert.deepEqual(other.caller, { session: "s2" });
  await Promise.all(
    Array.from({ length: 20 }, (_, n) => (n % 2 ? client : other).remember({ content: `note ${n}`, scope: "session" })),
  );
  assert.equal(proxy.connections, 1);
  assert.equal((await other.list()).notes.length, 10);
});

test("Without a daemon the error says so, and what to do.", async () => {
  await assert.rejects(new Client({ socket: join(SCRATCH, "none.sock"), workspace }).status(), (error) => {
    assert.ok(error instanceof amnesia.DaemonUnreachable);
    assert.match(error.message, /there is no socket/);
    assert.match(error.hint, /amnesia up/);
    return true;
  });
  await assert.rejects(new Client({ socket: `/tmp/${"x".repeat(200)}`, workspace }).status(), /the limit is 10[37]/);
});

test("A daemon that is silent costs no more than the deadline, and a signal ends the wait at once.", async (t) => {
  const path = join(SCRATCH, `silent${process.pid}.sock`);
  const sockets = new Set();
  const server = createServer((socket) => sockets.add(socket.on("error", () => {}))).listen(path);
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const client = new Client({ socket: path, workspace, timeoutMs: 150 });
  await assert.rejects(client.status(), { name: "Deadline", code: "deadline" });
  const stop = new AbortController();
  const asked = client.status({}, { signal: stop.signal, timeoutMs: 60_000 });
  const queued = client.status({}, { signal: stop.signal, timeoutMs: 60_000 });
  stop.abort(new Error("no longer needed"));
  await assert.rejects(asked, /no longer needed/);
  await assert.rejects(queued, /no longer needed/);
  await assert.rejects(client.status({}, { signal: stop.signal }), /no longer needed/);
});

/** A client of something that answers every request with this, and what it was sent. */
async function answered(t, answer) {
  const path = join(SCRATCH, `a${process.pid}-${(serial += 1)}.sock`);
  const asked = [];
  const sockets = new Set();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("data", (data) => {
      asked.push(String(data));
      socket.write(answer);
    });
  }).listen(path);
  await once(server, "listening");
  const client = new Client({ socket: path, workspace: "w", timeoutMs: 10_000 });
  t.after(() => {
    client.close();
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { client, asked };
}

test("A wait may be as long as one likes, and one that is no time is refused.", async () => {
  for (const timeoutMs of [Infinity, 2 ** 40]) assert.ok((await memory.status({}, { timeoutMs })).seq);
  for (const timeoutMs of [NaN, -1]) {
    await assert.rejects(memory.status({}, { timeoutMs }), { code: "invalid", field: "timeoutMs" });
    assert.throws(() => new Client({ socket: SOCKET, timeoutMs }), { code: "invalid", field: "timeoutMs" });
  }
});

test("An answer that is not JSON is an error of ours, which quotes nothing of it.", async (t) => {
  const { client } = await answered(t, "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nSECRET");
  const wrong = (error) => error instanceof amnesia.Bug && !`${error} ${error.cause}`.includes("SECRET");
  await assert.rejects(client.status(), wrong);
  await assert.rejects(client.hook("codex", {}), wrong);
  await assert.rejects(client.export().next(), wrong);
  await assert.rejects(client.importNotes([]), wrong);
});

test("An answer that goes on and on is cut off.", async (t) => {
  const { client } = await answered(t, `HTTP/1.1 200 OK\r\ncontent-length: 90000000\r\n\r\n${"x".repeat(9_000_000)}`);
  await assert.rejects(client.status(), { code: "too_large" });
});

test("An export that falls silent costs no more than the deadline, and a signal ends it with its own reason.", async (t) => {
  const { client } = await answered(t, 'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"seq":"1"}\n');
  const silent = client.export({ timeoutMs: 50 });
  assert.deepEqual((await silent.next()).value, { seq: "1" });
  await assert.rejects(silent.next(), { code: "deadline" });
  const stopped = new AbortController();
  const ended = client.export({ signal: stopped.signal });
  await ended.next();
  const next = ended.next();
  stopped.abort(new Error("enough"));
  await assert.rejects(next, { message: "enough" });
});

test("Closing ends what waits for the connection, too: it is never sent.", async (t) => {
  const { client, asked } = await answered(t, "");
  const waiting = [client.status(), client.remember({ content: "never sent" })];
  while (asked.length === 0) await sleep(5);
  client.close();
  for (const one of await Promise.allSettled(waiting)) assert.equal(one.reason.code, "unreachable");
  assert.ok(!asked.join("").includes("never sent"));
});

test("A feed tells what happens, and goes on where it was when its connection breaks.", async (t) => {
  const { proxy, client } = await proxied(t);
  await memory.remember({ content: "a workspace begins with its first note" });
  const told = [];
  let opened = false;
  const stop = new AbortController();
  const reading = (async () => {
    for await (const item of client.feed({ signal: stop.signal })) {
      opened ||= item.type === "opened";
      if (item.type === "written") told.push(item.data.id);
    }
  })();
  // It begins where the daemon takes it up, a moment after it was asked for.
  await until(() => opened);
  const ids = [];
  for (const content of ["first", "second", "third"]) {
    await until(() => proxy.asked.includes("GET /v1/feed"));
    ids.push((await memory.remember({ content })).id);
    await until(() => told.length === ids.length);
    proxy.asked = "";
    proxy.cut();
    // While nobody listens, something happens too.
    ids.push((await memory.remember({ content: `${content}, meanwhile` })).id);
    await until(() => told.length === ids.length);
  }
  assert.deepEqual(told, ids);
  stop.abort();
  await reading;
});

test("A feed waits for a daemon that is away, and closing the client ends it.", async (t) => {
  const { proxy, client } = await proxied(t);
  await memory.remember({ content: "a workspace begins with its first note" });
  await proxy.close();
  const told = [];
  const reading = (async () => {
    for await (const item of client.feed()) told.push(item.type);
  })();
  await sleep(50);
  await proxy.listen();
  await until(() => told.includes("opened"));
  await memory.remember({ content: "while it listens" });
  await until(() => told.includes("written"));
  client.close();
  await reading;
});

test("A feed that is refused says why.", async () => {
  const feed = new Client({ socket: SOCKET, workspace: "w\u0000" }).feed({ after: "0" });
  await assert.rejects(feed.next(), { name: "Invalid", field: "workspace" });
});

test("An export is read line by line, and what is imported elsewhere is the same.", async () => {
  for (const content of ["one", "two", "three"]) await memory.remember({ content });
  const lines = [];
  for await (const line of memory.export()) lines.push(JSON.stringify(line));
  assert.ok(lines.length >= 4);
  const elsewhere = new Client({ socket: SOCKET, workspace: `${workspace}-copy` });
  assert.equal((await elsewhere.importNotes(lines, { dry_run: true })).imported, 3);
  assert.equal((await elsewhere.list()).notes.length, 0);
  assert.equal((await elsewhere.importNotes(lines)).imported, 3);
  assert.equal((await elsewhere.list()).notes.length, 3);
  for await (const line of elsewhere.export()) {
    assert.ok(line);
    break;
  }
  elsewhere.close();
});

test("A reader may be slow, and loses nothing of a long answer.", async () => {
  const requests = Array.from({ length: 200 }, (_, n) => ({
    verb: "remember",
    body: { content: `${n} ${"long ".repeat(300)}` },
  }));
  await memory.policy({ set: { max_store_bytes: "1MiB" } });
  await memory.batch({ requests });
  let notes = 0;
  for await (const line of memory.export()) {
    if (JSON.stringify(line).includes("long long")) notes += 1;
    if (notes % 50 === 1) await sleep(30);
  }
  assert.equal(notes, 200);
});

test("A batch answers each request on its own, and its writes are safe to repeat.", async (t) => {
  const { proxy, client } = await proxied(t);
  proxy.losing = 1;
  const { answers } = await client.batch({
    requests: [
      { verb: "remember", body: { content: "in a batch" } },
      { verb: "inspect", body: { id: "0000000000" } },
    ],
  });
  assert.equal(answers[0].created, true);
  assert.equal(answers[1].error.code, "not_found");
  assert.equal((await memory.list()).notes.length, 1);
});

test("An agent's own hook payload is answered in that agent's own form, and is never repeated.", async (t) => {
  const { proxy, client } = await proxied(t);
  await memory.remember({ content: "tests run with make", kind: "directive" });
  const payload = { hook_event_name: "SessionStart", session_id: "h1", cwd: "/", source: "startup" };
  const answer = await client.hook("claude-code", payload, { workspace });
  assert.match(answer.hookSpecificOutput.additionalContext, /tests run with make/);
  proxy.losing = 1;
  await assert.rejects(client.hook("claude-code", payload, { workspace }), { name: "DaemonUnreachable" });
});

test("With more connections than one, a slow answer holds nobody else up.", async (t) => {
  const { proxy } = await proxied(t);
  const wide = new Client({ socket: proxy.path, workspace, connections: 3 });
  t.after(() => wide.close());
  await Promise.all(Array.from({ length: 12 }, () => wide.status()));
  assert.equal(proxy.connections, 3);
});

test("A lifecycle event gets an id and says whose it is.", async (t) => {
  const { proxy, client } = await proxied(t);
  assert.equal((await client.events({ event: "session-start" })).accepted, 1);
  assert.match(proxy.asked, /"id":"[^"]+","workspace":"[^"]+","session":"s1","event":"session-start"/);
});

/** Look until it is so; the test's own time limit ends a wait in vain. */
async function until(so) {
  while (!so()) await sleep(5);
}
