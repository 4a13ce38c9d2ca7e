/**
 * The block of notes that each agent's context shows: fetched beforehand, because DSH asks for its text synchronously, and
 * kept as the same text until the notes change, because each other text is one more snapshot in the session's log.
 *
 * A step fetches it anew; the workspace's feed does so between steps. Remaining lives alone change nothing: they are
 * compared without, and shown as they were when the notes last changed. What a step shows for the first time is asked for
 * by `inject`, so that the ledger knows; everything else by `preview`, which leaves no trace.
 */

import { NotFound } from "./amnesiad.mjs";

/** What happens to notes often comes in bursts; one look after each is enough. */
const SETTLE_MS = 50;
/** Events after which nothing is shown differently. */
const QUIET = new Set(["opened", "injected", "missed", "scrubbed"]);

/** @typedef {import("./amnesiad.d.mts").Client} Client */
/** @typedef {{agent: any, text: string, seen: string, logged: boolean, turn: Promise<void>}} Block */

export class Blocks {
  /** @type {Map<string, Block>} */
  #blocks = new Map();
  /** @type {Set<string>} */
  #feeds = new Set();
  /** @type {Map<string, NodeJS.Timeout>} */
  #timers = new Map();
  #stop = new AbortController();

  /**
   * @param {import("./fleet.mjs").Fleet} fleet @param {Client} client
   * @param {number} patienceMs how long a look may take
   * @param {number} [budget] in tokens; the workspace's own without
   */
  constructor(fleet, client, patienceMs, budget) {
    this.fleet = fleet;
    this.client = client;
    this.patienceMs = patienceMs;
    this.budget = budget;
  }

  /** What the context shows now: the same string as long as the notes are the same. @param {any} agent */
  textFor(agent) {
    return this.#blocks.get(agent.session.header.id)?.text ?? "";
  }

  /**
   * Make the block what it is for the step that begins. Never rejects; without the daemon the agent has no memory.
   * @param {any} agent @param {AbortSignal} signal
   */
  refresh(agent, signal) {
    return this.#look(this.#blockOf(agent), true, signal);
  }

  /** An agent is gone. @param {any} agent */
  drop(agent) {
    this.#blocks.delete(agent.session.header.id);
  }

  /** Something was written here: look again, without waiting for the feed. @param {string} workspace */
  changed(workspace) {
    if (this.#stop.signal.aborted || this.#timers.has(workspace)) return;
    const timer = setTimeout(async () => {
      this.#timers.delete(workspace);
      for (const block of this.#blocks.values()) {
        if ((await this.fleet.workspaceOf(block.agent)) === workspace) void this.#look(block, false);
      }
    }, SETTLE_MS);
    this.#timers.set(workspace, timer.unref());
  }

  /** Nothing is fetched any more, no timer runs, no feed is read, and nothing is shown. */
  close() {
    this.#stop.abort();
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    this.#blocks.clear();
  }

  /** @param {any} agent @returns {Block} */
  #blockOf(agent) {
    const { id } = agent.session.header;
    let block = this.#blocks.get(id);
    if (!block) {
      block = { agent, text: "", seen: "", logged: true, turn: Promise.resolve() };
      this.#blocks.set(id, block);
    }
    block.agent = agent;
    return block;
  }

  /** One look at a time for each agent: a slow one must not undo what a later one found.
   * @param {Block} block @param {boolean} shown whether a step is about to show it @param {AbortSignal} [signal] */
  #look(block, shown, signal) {
    const options = { timeoutMs: this.patienceMs, signal: AbortSignal.any([this.#stop.signal, ...(signal ? [signal] : [])]) };
    const looked = block.turn.then(() => this.#fetch(block, shown, options));
    // Without the daemon nothing is known to hold any more, so nothing is shown.
    block.turn = looked.catch(() => {
      block.text = block.seen = "";
      block.logged = true;
    });
    return block.turn;
  }

  /** @param {Block} block @param {boolean} shown @param {import("./amnesiad.d.mts").CallOptions} options */
  async #fetch(block, shown, options) {
    if (this.#stop.signal.aborted) return;
    const client = await this.fleet.clientOf(block.agent);
    const asked = this.budget === undefined ? {} : { budget_tokens: this.budget };
    const now = await client.preview(asked, options);
    this.#follow(/** @type {string} */ (client.workspace));
    const seen = substance(now.text);
    let text = seen === block.seen ? block.text : plain(now.text);
    let logged = seen === block.seen && block.logged;
    if (shown && !logged && seen) {
      // It may say more than the preview: what was shown before and has been taken back since is said once.
      const injected = plain((await client.inject(asked, options)).text);
      if (substance(injected) !== substance(text)) text = injected;
      logged = true;
    }
    block.text = text;
    block.seen = seen;
    block.logged = logged || !seen;
  }

  /** Read the feed of a workspace, once. @param {string} workspace */
  #follow(workspace) {
    if (this.#feeds.has(workspace) || this.#stop.signal.aborted) return;
    this.#feeds.add(workspace);
    void this.#read(workspace)
      // A workspace begins with its first note: until then there is no feed, and the next step tries again.
      .catch((failure) => failure instanceof NotFound)
      .finally(() => this.#feeds.delete(workspace));
  }

  /** @param {string} workspace */
  async #read(workspace) {
    const feed = this.client.as({ workspace }).feed({ signal: this.#stop.signal, unref: true });
    for await (const item of feed) if (!QUIET.has(item.type)) this.changed(workspace);
  }
}

/** A block without the remaining lives of its notes and the figures of its last line: what it says.
 * @param {string} text */
function substance(text) {
  return text.replace(/^(\[[^\]]+\] \S+) \S+/gm, "$1").replace(/\n[^\n]*$/, "");
}

/** DSH puts values in the place of `{{names}}` in a context's text, and fails on those it does not know.
 * @param {string} text */
function plain(text) {
  return text.replace(/\{(?=\{)/g, "{ ");
}
