/**
 * The block of notes that each agent's context shows: fetched beforehand, because DSH asks for its text synchronously, and
 * kept as the same text until the notes change, because each other text is one more snapshot in the session's log.
 *
 * A step's assembly fetches it anew; the workspace's feed does so between steps. Remaining lives alone change nothing: they are
 * compared without, and shown as they were when the notes last changed. What a step shows for the first time is asked for
 * by `inject`, so that the ledger knows; everything else by `preview`, which leaves no trace.
 */

/** What happens to notes often comes in bursts; one look after each is enough. */
const SETTLE_MS = 50;
/** Events after which nothing is shown differently. */
const QUIET = new Set(["opened", "injected", "missed", "scrubbed"]);

/** @typedef {import("./amnesiad.d.mts").Client} Client */
/**
 * `text` is shown; `seen` is the substance of the preview that it was made for, and `logged` whether the ledger knows of
 * it; `turn` is over when the last look is, and `fresh` says that one was taken for the step that begins.
 * @typedef {{agent: any, workspace?: string, text: string, seen: string, logged: boolean, fresh: boolean,
 *   turn: Promise<void>}} Block
 */

export class Blocks {
  /** @type {Map<string, Block>} */
  #blocks = new Map();
  /** @type {Map<string, AbortController>} */
  #feeds = new Map();
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
    return this.#blocks.get(agent.session?.header.id)?.text ?? "";
  }

  /**
   * Make the block what it is for the step that begins; without the daemon the agent has no memory.
   * @param {any} agent @param {AbortSignal} [signal]
   */
  async refresh(agent, signal) {
    const block = this.#blockOf(agent);
    block.fresh = true;
    return this.#look(block, true, signal);
  }

  /** Whether a look was taken since this was last asked. @param {any} agent */
  takeFresh(agent) {
    const block = this.#blockOf(agent);
    const { fresh } = block;
    block.fresh = false;
    return fresh;
  }

  /** An agent is gone, and with the last one of a workspace its feed. @param {any} agent */
  drop(agent) {
    const { id } = agent.session.header;
    const workspace = this.#blocks.get(id)?.workspace;
    this.#blocks.delete(id);
    if (workspace === undefined || [...this.#blocks.values()].some((block) => block.workspace === workspace)) return;
    this.#feeds.get(workspace)?.abort();
  }

  /** Something was written here: look again, without waiting for the feed. @param {string} workspace */
  changed(workspace) {
    if (this.#stop.signal.aborted || this.#timers.has(workspace)) return;
    const timer = setTimeout(() => {
      this.#timers.delete(workspace);
      for (const block of this.#blocks.values()) if (block.workspace === workspace) void this.#look(block, false);
    }, SETTLE_MS);
    this.#timers.set(workspace, timer.unref());
  }

  /** Nothing is fetched any more, no timer runs, no feed is read, and nothing is shown. */
  close() {
    this.#stop.abort();
    for (const feed of this.#feeds.values()) feed.abort();
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    this.#blocks.clear();
  }

  /** @param {any} agent @returns {Block} */
  #blockOf(agent) {
    const { id } = agent.session.header;
    let block = this.#blocks.get(id);
    if (!block) {
      block = { agent, text: "", seen: "", logged: true, fresh: false, turn: Promise.resolve() };
      this.#blocks.set(id, block);
    }
    block.agent = agent;
    return block;
  }

  /** One look at a time for each agent: a slow one must not undo what a later one found.
   * @param {Block} block @param {boolean} shown whether a step is about to show it @param {AbortSignal} [signal] */
  #look(block, shown, signal) {
    const ends = signal ? AbortSignal.any([this.#stop.signal, signal]) : this.#stop.signal;
    const options = { timeoutMs: this.patienceMs, signal: ends };
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
    block.workspace = /** @type {string} */ (client.workspace);
    this.#follow(block);
    const seen = substance(now.text);
    let text = seen === block.seen ? block.text : plain(now.text);
    let logged = seen === block.seen && block.logged;
    if (shown && !logged) {
      // It may say more than the preview: what was shown before and has been taken back since is said once.
      const injected = plain((await client.inject(asked, options)).text);
      if (substance(injected) !== substance(text)) text = injected;
      logged = true;
    }
    Object.assign(block, { text, seen, logged });
  }

  /** Read the feed of the block's workspace, once for all of its agents. @param {Block} block */
  #follow({ agent, workspace = "" }) {
    const gone = this.#blocks.get(agent.session.header.id)?.agent !== agent;
    if (gone || this.#feeds.has(workspace) || this.#stop.signal.aborted) return;
    const ends = new AbortController();
    this.#feeds.set(workspace, ends);
    void this.#read(workspace, ends.signal)
      // A workspace begins with its first note: until then its feed is refused, and the next step asks again.
      .catch(() => {})
      .finally(() => this.#feeds.delete(workspace));
  }

  /** @param {string} workspace @param {AbortSignal} signal */
  async #read(workspace, signal) {
    const feed = this.client.as({ workspace }).feed({ signal, unref: true });
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
