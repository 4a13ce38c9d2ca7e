/**
 * Who an agent of DSH is to the daemon, where its workspace is, and what is told of its life.
 *
 * The owner is the session: `agent.session.header.id`. A child owns its notes as `PARENT/CHILD`, from its header alone, so
 * that a child that comes back after a restart finds them. An end is told by the child's id only, so those that were seen
 * are remembered until they are disposed of.
 */

import { execFile } from "node:child_process";
import { realpathSync } from "node:fs";
import { basename, dirname, resolve } from "node:path";

/** `git rev-parse` takes milliseconds; on a file system that hangs, waiting longer would not help. */
const GIT_TIMEOUT_MS = 5_000;
/** What a git hook runs with; git would believe it rather than the directory it stands in. */
const GIT_LOCATION = ["GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"];

/** @typedef {import("./amnesiad.d.mts").Who} Who */
/** @typedef {import("./amnesiad.d.mts").Client} Client */
/** @typedef {import("./amnesiad.d.mts").CallOptions} CallOptions */

export class Fleet {
  /** @type {Map<string, {who: Who, workspace: Promise<string>}>} */
  #children = new Map();
  /** @type {Set<string>} */
  #workflow = new Set();
  /** @type {Map<string, Promise<string>>} */
  #workspaces = new Map();

  /** @param {any} ctx @param {Client} client @param {string | undefined} workspace the one of all agents, if given */
  constructor(ctx, client, workspace) {
    this.ctx = ctx;
    this.client = client;
    this.workspace = workspace;
  }

  /** The child's notes end with its workflow, not with its run. @param {string} id */
  isWorkflow(id) {
    this.#workflow.add(id);
  }

  /**
   * For whom an agent asks. A fork of a session has a parent too and is no child; a delegation has a depth.
   * @param {any} agent
   * @returns {Who}
   */
  whoIs(agent) {
    const { id, parentSession, origin, delegationDepth } = agent.session.header;
    const child = parentSession !== undefined && (origin === "subagent" || delegationDepth > 0);
    if (child) {
      const who = /** @type {Who} */ ({ session: parentSession, agent: id, agent_kind: this.#kindOf(agent) });
      this.#children.set(id, { who, workspace: this.workspaceOf(agent) });
      return who;
    }
    if (parentSession !== undefined && this.#isTeammate(id, parentSession)) {
      return { session: id, agent: id, team: parentSession, agent_kind: "teammate" };
    }
    // Whoever leads a team is the team: its notes are found under the lead's own session.
    return { session: id, team: id, agent_kind: "main" };
  }

  /** @param {any} agent */
  #kindOf(agent) {
    if (this.#workflow.has(agent.session.header.id)) return "workflow";
    const described = agent.session.events?.find((/** @type {any} */ event) => event.type === "subagent/descriptor");
    return described?.data?.mode === "continuable" ? "continuable" : "subagent";
  }

  /** @param {string} id @param {string} lead */
  #isTeammate(id, lead) {
    const events = this.ctx.get("agents")?.get(lead)?.session.events ?? [];
    return events.some((/** @type {any} */ event) => event.type === "team/member" && event.data?.member?.id === id);
  }

  /**
   * The workspace of an agent: the repository of its session's directory, shared by all worktrees, else that directory.
   * @param {any} agent
   * @returns {Promise<string>}
   */
  workspaceOf(agent) {
    return this.workspaceIn(agent?.session.header.cwd);
  }

  /** @param {string} [directory] @returns {Promise<string>} */
  workspaceIn(directory = process.cwd()) {
    if (this.workspace) return Promise.resolve(this.workspace);
    let found = this.#workspaces.get(directory);
    if (!found) {
      found = repository(directory);
      this.#workspaces.set(directory, found);
      found.catch(() => this.#workspaces.delete(directory));
    }
    return found;
  }

  /** A client that speaks for this agent. @param {any} agent @returns {Promise<Client>} */
  async clientOf(agent) {
    const who = this.whoIs(agent);
    return this.client.as({ ...who, workspace: await this.workspaceOf(agent) });
  }

  /** Tell an event of an agent that is there. @param {any} agent @param {"turn-end"} event @param {CallOptions} [options] */
  async report(agent, event, options) {
    await (await this.clientOf(agent)).events({ event, source: "dsh" }, options);
  }

  /**
   * Tell the end of a child of which only the id is known. One that was never seen has written nothing through here.
   * @param {string} id @param {"subagent-end" | "workflow-agent-end"} event
   */
  async ended(id, event) {
    const agent = this.ctx.get("agents")?.get(id);
    if (agent) this.whoIs(agent);
    const child = this.#children.get(id);
    if (!child) return;
    const who = event === "workflow-agent-end" ? { ...child.who, agent_kind: /** @type {const} */ ("workflow") } : child.who;
    await this.client.as({ ...who, workspace: await child.workspace }).events({ event, source: "dsh" });
  }

  /**
   * Tell that an agent is gone. A continuable child is disposed of whenever it rests, and the end of its run has said so
   * already; whether its notes are kept then is the workspace's policy.
   * @param {any} agent
   */
  async disposed(agent) {
    const who = this.whoIs(agent);
    this.#children.delete(agent.session.header.id);
    this.#workflow.delete(agent.session.header.id);
    if (who.agent_kind === "continuable") return;
    const client = this.client.as({ ...who, workspace: await this.workspaceOf(agent) });
    await client.events({ event: "agent-disposed", source: "dsh" });
  }
}

/**
 * The root of the repository that a directory belongs to, as the daemon's own programs name it; outside of one, or
 * without git, the directory itself. Rejects where git does not answer: the wrong name would be another memory.
 * @param {string} directory
 * @returns {Promise<string>}
 */
function repository(directory) {
  const env = { ...process.env };
  for (const name of GIT_LOCATION) delete env[name];
  // Asking where the repository is runs none of its hooks, so one that belongs to somebody else is no danger here.
  const argv = ["-c", "safe.directory=*", "rev-parse", "--git-common-dir"];
  return new Promise((fulfil, reject) => {
    execFile("git", argv, { cwd: directory, env, timeout: GIT_TIMEOUT_MS }, (failure, stdout) => {
      if (failure?.killed) return reject(new Error(`git did not say within 5 s which repository ${directory} belongs to`));
      const found = stdout?.replace(/\n$/, "");
      if (failure || !found) return fulfil(real(directory));
      const common = real(resolve(directory, found));
      // A bare repository and a submodule keep their common directory under another name; it is their identity as it is.
      fulfil(basename(common) === ".git" ? dirname(common) : common);
    });
  });
}

/** @param {string} path */
function real(path) {
  try {
    return realpathSync(path);
  } catch {
    return resolve(path);
  }
}
