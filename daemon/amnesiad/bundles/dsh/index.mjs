/**
 * amnesiad in DSH: its tools, its block of notes in the context, and the lifecycle of agents, over the daemon's socket.
 *
 * A Cordis plugin: `name`, `inject` and `apply(ctx, config)`. Everything it registers belongs to the context and goes with
 * it; so do its connection, its feeds and its timers. Nothing here throws into an agent or makes it wait for long: where
 * the daemon is away or slow, the agent goes on without memory.
 */

import { Client } from "./amnesiad.mjs";
import { Blocks } from "./blocks.mjs";
import { command } from "./command.mjs";
import { Fleet } from "./fleet.mjs";
import { tools } from "./tools.mjs";
import { views } from "./views.mjs";

export const name = "amnesia";
export const inject = ["systemPrompt", "tools"];

/** Under which name the notes stand among the runtime contexts. */
const CONTEXT = "amnesia";
/** How long a step or the end of a turn waits for the daemon. It answers in a few milliseconds where it is well. */
const PATIENCE_MS = 300;
/** How long a tool, a command or a view may take: a person or a model waits for its answer. */
const ANSWER_MS = 5_000;
/** So that one agent's slow call is not what another one's step waits for. */
const CONNECTIONS = 4;
/** After what identifies the agent and its task, before what changes from step to step. */
const ORDER = 500;

/** What may be configured, and of what type. `budgetTokens` and `patienceMs` are to be above zero. */
const SETTINGS = { socket: "string", workspace: "string", budgetTokens: "number", patienceMs: "number", order: "number" };

/** The configuration as Cordis checks it (a Standard Schema): what is unknown or wrong stops the start, by name. */
export const Config = {
  "~standard": {
    version: 1,
    vendor: "amnesiad",
    /** @param {unknown} value */
    validate(value) {
      const given = /** @type {Record<string, unknown>} */ (value ?? {});
      const issues = Object.entries(given).flatMap(([setting, set]) => problem(setting, set));
      return issues.length > 0 ? { issues } : { value: given };
    },
  },
};

/** @param {string} setting @param {unknown} set @returns {{message: string, path: string[]}[]} */
function problem(setting, set) {
  /** @param {string} message */
  const say = (message) => [{ message: `amnesia: ${setting} ${message}`, path: [setting] }];
  if (!Object.hasOwn(SETTINGS, setting)) return say(`is no setting; known are ${Object.keys(SETTINGS).join(", ")}`);
  if (set === undefined || set === null) return [];
  const wanted = SETTINGS[/** @type {keyof typeof SETTINGS} */ (setting)];
  if (typeof set !== wanted || set === "") return say(`has to be a ${wanted}`);
  if (wanted === "number" && !Number.isFinite(set)) return say("has to be a finite number");
  return setting === "order" || wanted === "string" || Number(set) > 0 ? [] : say("has to be above zero");
}

/**
 * @param {any} ctx
 * @param {{socket?: string, workspace?: string, budgetTokens?: number, patienceMs?: number, order?: number}} [config]
 *   `socket` and `workspace` default to `AMNESIA_SOCKET` and `AMNESIA_WORKSPACE`, then to the usual place and to the
 *   repository of the session's directory; `budgetTokens` to the workspace's policy.
 */
export function apply(ctx, config = {}) {
  const patienceMs = config.patienceMs ?? PATIENCE_MS;
  const socket = config.socket ? { socket: config.socket } : {};
  const client = new Client({ ...socket, timeoutMs: ANSWER_MS, connections: CONNECTIONS });
  const fleet = new Fleet(ctx, client, config.workspace || process.env.AMNESIA_WORKSPACE);
  const blocks = new Blocks(fleet, client, patienceMs, config.budgetTokens ?? undefined);
  /** @type {Set<Promise<unknown>>} */
  const sending = new Set();

  /** Report an event of an agent. It never fails: what is lost here, the agent's lease makes good.
   * @param {() => Promise<unknown>} report */
  const tell = (report) => {
    const sent = report().catch(() => {});
    sending.add(sent);
    void sent.finally(() => sending.delete(sent));
    return sent;
  };

  ctx.effect(() => async () => {
    blocks.close();
    // The last agents' ends are on their way when a whole host stops.
    await within(patienceMs, undefined, Promise.all(sending));
    client.close();
  }, "amnesia connection");

  // The loop assembles a step's context before it proposes the step, and asks for texts before it asks who would wait.
  // So the fresh text takes the place of the one that was there.
  ctx.on("system-prompt/assemble", async (/** @type {any} */ _begun, /** @type {any} */ about, /** @type {any} */ next) => {
    if (!about?.agent) return next();
    const known = await within(patienceMs, about.signal, blocks.refresh(about.agent, about.signal));
    const assembly = await next();
    const ours = assembly.contexts?.find((/** @type {any} */ one) => one.name === CONTEXT);
    if (ours) ours.text = known ? blocks.textFor(about.agent) : "";
    return assembly;
  });
  ctx.on("agent/pre-step", async (/** @type {any} */ { agent, signal }, /** @type {() => Promise<unknown>} */ next) => {
    // Where no assembly went before, the one that comes finds the text ready.
    if (!blocks.takeFresh(agent)) await within(patienceMs, signal, blocks.refresh(agent, signal));
    return next();
  });
  ctx.on("agent/turn-stopping", (/** @type {any} */ { agent, signal }) => {
    const options = { signal, timeoutMs: patienceMs };
    return within(patienceMs, signal, tell(() => fleet.report(agent, "turn-end", options))).then(() => {});
  });
  ctx.on("subagent/end", (/** @type {any} */ { id }) => {
    void tell(() => fleet.ended(id, "subagent-end"));
  });
  ctx.on("workflow/agent-start", (/** @type {any} */ _run, /** @type {any} */ { childId }) => {
    fleet.isWorkflow(childId);
  });
  ctx.on("workflow/agent-end", (/** @type {any} */ _run, /** @type {any} */ { childId }) => {
    fleet.isWorkflow(childId);
    void tell(() => fleet.ended(childId, "workflow-agent-end"));
  });
  ctx.on("agent/disposed", (/** @type {any} */ { agent }) => {
    void tell(() => fleet.disposed(agent));
    blocks.drop(agent);
  });

  ctx.systemPrompt.context({
    name: CONTEXT,
    order: config.order ?? ORDER,
    text: (/** @type {any} */ assembly) => (assembly?.agent ? blocks.textFor(assembly.agent) : ""),
  });
  for (const tool of tools(fleet, client, blocks)) ctx.tools.register(tool);
  const shown = views(fleet, client, blocks);
  ctx.inject(["commands"], (/** @type {any} */ inner) => {
    inner.commands.register(command(fleet, client, blocks));
  });
  ctx.inject(["harness"], (/** @type {any} */ inner) => {
    for (const [view, handler] of Object.entries(shown)) {
      const undo = inner.harness.handle(`amnesia.${view}`, handler);
      if (typeof undo === "function") inner.effect(() => undo, `amnesia.${view}`);
    }
  });
  ctx.provide("amnesia", shown);
}

/**
 * Wait for a promise, but no longer than this, and not at all once the signal is aborted. Never rejects.
 * @param {number} ms @param {AbortSignal | undefined} signal @param {Promise<unknown>} promise
 * @returns {Promise<boolean>} whether it was over in time
 */
function within(ms, signal, promise) {
  return new Promise((done) => {
    /** @param {boolean} inTime */
    const over = (inTime) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      done(inTime);
    };
    const abort = () => over(false);
    const timer = setTimeout(abort, ms);
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort, { once: true });
    promise.then(
      () => over(true),
      () => over(false),
    );
  });
}
