/**
 * The DSH bundle under DSH's own agent loop, with a model that says what the test has written for it: `SOCKET` says where
 * the daemon listens. The loop needs Node 22.
 */

import assert from "node:assert/strict";
import { afterEach, before, beforeEach, test } from "node:test";

import { Context } from "@deepseek-ai/cordis";
import { AgentRegistry } from "@deepseek-ai/dsh-agent";
import { AgentLoop } from "@deepseek-ai/dsh-agent-loop";
import { LlmAdapter, LlmRuntime, createUserMessage } from "@deepseek-ai/dsh-llm";
import { SessionStore } from "@deepseek-ai/dsh-session";
import { SystemPrompt } from "@deepseek-ai/dsh-system-prompt";
import { ToolRuntime } from "@deepseek-ai/dsh-tools";

import * as bundle from "../../daemon/amnesiad/bundles/dsh/index.mjs";
import { Client } from "../../daemon/amnesiad/bundles/node/amnesiad.mjs";

const { SOCKET } = process.env;

let workspace;
let human;
let model;
let ctx;
let serial = 0;

/** Answers with the next line of its script, a text or a tool call, and keeps what it was asked. */
class Scripted extends LlmAdapter {
  script = [];
  asked = [];

  async *stream({ messages }) {
    this.asked.push(messages.map(({ role, content }) => `${role}: ${content.map((one) => one.text ?? one.type).join("")}`));
    const { tool, args, text = "done" } = this.script.shift() ?? {};
    const call = { type: "tool-call", id: `call-${this.asked.length}`, name: tool, arguments: JSON.stringify(args) };
    const block = tool ? call : { type: "text", text };
    yield { type: "block-start", index: 0, blockType: block.type };
    yield tool
      ? { type: "tool-call-delta", index: 0, id: call.id, name: tool, argumentsDelta: call.arguments }
      : { type: "text-delta", index: 0, text };
    yield { type: "block-end", index: 0, block };
    yield { type: "finish", reason: { kind: tool ? "tool-calls" : "stop" } };
  }
}

before(async () => {
  // What the daemon loads with its first answer is no part of anybody's patience.
  const first = new Client({ socket: SOCKET, workspace: `loop-${process.pid}` });
  await first.remember({ content: "the first of all" });
  await first.inject();
  first.close();
});
beforeEach(async () => {
  workspace = `loop-${process.pid}-${(serial += 1)}`;
  human = new Client({ socket: SOCKET, workspace, role: "human" });
});
afterEach(async () => {
  await ctx.fiber.dispose();
  human.close();
});

async function start(config = {}) {
  ctx = new Context();
  for (const service of [SystemPrompt, SessionStore, AgentRegistry, LlmRuntime, ToolRuntime]) await ctx.plugin(service, {});
  await ctx.plugin(AgentLoop, { agents: [] });
  await ctx.inject(["llm"], (inner) => {
    model = new Scripted(inner);
    inner.llm.registerAdapter(["scripted"], model);
  });
  await ctx.plugin(bundle, { socket: SOCKET, workspace, patienceMs: 5_000, ...config });
}

function begin(sessionId) {
  return ctx.agents.create({ sessionId, agentOptions: { provider: "scripted", model: "m" } });
}

/** Say something to the agent: what its model was asked until it rested. */
async function say({ agent }, text, ...script) {
  model.asked = [];
  model.script = script;
  agent.followup(createUserMessage({ content: [{ type: "text", text }], source: { kind: "user" } }));
  await agent.whenIdle();
  const ends = agent.session.events.filter((event) => event.type === "turn/end");
  assert.equal(ends.at(-1).data.reason.kind, "completed");
  return model.asked;
}

const showing = (messages, what) => messages.filter((message) => message.includes("AMNESIA MEMORY") && what.test(message));

test("A note is in the request after the one that wrote it, once for as long as it stands, and in a new session's first.", async () => {
  await start();
  const handle = await begin("one");
  const remember = { tool: "amnesia_remember", args: { content: "deploys run on Mondays", ttl: "7d" } };
  const asked = await say(handle, "when do we deploy?", remember);
  assert.deepEqual(asked.map((messages) => showing(messages, /Mondays/).length), [0, 1]);
  const [again] = await say(handle, "and now?");
  assert.equal(showing(again, /Mondays/).length, 1);
  const [first] = await say(await begin("two"), "hello");
  assert.equal(showing(first, /Mondays/).length, 1);

  const [{ id }] = (await human.recall()).notes;
  const [, after] = await say(handle, "forget it", { tool: "amnesia_forget", args: { id } });
  assert.match(after.at(-1), /Current runtime context: none/);
  assert.equal((await human.ledger({ session: "two" })).rows.filter((row) => row.kind === "inject").length, 1);
});

test("A session's own notes end when the loop disposes of its agent.", async () => {
  await start();
  const handle = await begin("one");
  await say(handle, "note this", { tool: "amnesia_remember", args: { content: "for now", ttl: "7d", scope: "session" } });
  assert.equal((await human.list({ states: ["active"] })).notes.length, 1);
  await handle.dispose();
  while ((await human.audit()).entries.length === 0) await new Promise((done) => setTimeout(done, 10));
  assert.equal((await human.audit()).entries[0].reason, "agent-disposed");
});

test("Without a daemon a turn goes as it would without the bundle, and a call of a tool says why.", async () => {
  await start({ socket: `${SOCKET}.none` });
  const handle = await begin("one");
  const began = Date.now();
  const asked = await say(handle, "hello", { tool: "amnesia_recall", args: { query: "x" } }, { text: "never mind" });
  assert.ok(Date.now() - began < 3_000);
  assert.equal(asked.length, 2);
  const [result] = handle.agent.session.events.filter((event) => event.type === "tool/result");
  assert.match(JSON.stringify(result.data), /unreachable: there is no socket/);
});
