/**
 * As much of DSH as its bundles talk to: Cordis, the registries of prompts, tools, commands and agents as they are
 * published, sessions, and agents that are driven by hand in the place of the loop that calls a model.
 */

import { Context } from "@deepseek-ai/cordis";
import { AgentRegistry, agentEvents, assembleContextFor } from "@deepseek-ai/dsh-agent";
import { CommandRuntime } from "@deepseek-ai/dsh-commands";
import { SESSION_FORMAT_VERSION, Session } from "@deepseek-ai/dsh-session";
import { SystemPrompt, renderContextSections } from "@deepseek-ai/dsh-system-prompt";
import { ToolRuntime } from "@deepseek-ai/dsh-tools";

export class Host {
  #calls = 0;

  /** Start one, with these plugins: pairs of a module and its configuration. */
  static async start(...plugins) {
    const host = new Host();
    host.ctx = new Context();
    for (const service of [SystemPrompt, AgentRegistry, ToolRuntime, CommandRuntime]) await host.ctx.plugin(service, {});
    host.fibers = [];
    for (const [plugin, config] of plugins) host.fibers.push(await host.ctx.plugin(plugin, config));
    return host;
  }

  /** Stop the plugins, as a host does that is told to unload them. */
  async unload() {
    for (const fiber of this.fibers) await fiber.dispose();
  }

  async stop() {
    await this.ctx.fiber.dispose();
  }

  /** An agent with a session of its own; `header` as DSH writes it. */
  agent(id, header = {}) {
    const session = Session.create(id, [], { version: SESSION_FORMAT_VERSION, id, createdAt: Date.now(), ...header });
    const agent = { id, options: {}, session, status: "idle", ctx: this.ctx };
    agent.leave = this.ctx.agents.register(agent);
    return agent;
  }

  /** The contexts that a request of this agent shows, by name. */
  async shown(agent, signal) {
    const assembly = await this.ctx.systemPrompt.assemble(assembleContextFor(agent, signal));
    return Object.fromEntries(renderContextSections(assembly).map(({ name, text }) => [name, text]));
  }

  /** The tools that this agent's model is told of. */
  async tools(agent) {
    return (await this.ctx.systemPrompt.assemble(assembleContextFor(agent))).tools;
  }

  /** One step in the loop's own order, assembly first: what it shows of the memory, empty where that is nothing. */
  async step(agent, { signal = new AbortController().signal, turn = 1, step = 1 } = {}) {
    const memory = (await this.shown(agent, signal)).amnesia ?? "";
    const decision = { kind: "enter", messages: [] };
    const payload = { messages: [], turn, step, signal };
    const entered = await agentEvents(this.ctx, agent).waterfall("agent/pre-step", payload, async () => decision);
    if (entered !== decision) throw new Error("the step is not what the loop proposed");
    return memory;
  }

  stopTurn(agent, { signal = new AbortController().signal, turn = 1 } = {}) {
    return agentEvents(this.ctx, agent).serial("agent/turn-stopping", { turn, signal });
  }

  endSubagent(agent) {
    const id = agent.session.header.id;
    this.ctx.emit("subagent/end", { runId: `run-${id}`, provider: "spawn", id, local: true, stopReason: "completed" });
  }

  endWorkflowAgent(agent) {
    const member = { seq: 1, label: "one", childId: agent.session.header.id, outcome: "completed" };
    this.ctx.emit("workflow/agent-end", { id: "w1", meta: { name: "flow" } }, member);
  }

  /** The agent leaves the registry, which tells that it is gone. */
  dispose(agent) {
    agent.leave();
  }

  /** Call a tool as the loop does: what the model reads, and whether it is an error. */
  async call(agent, tool, args, signal = new AbortController().signal) {
    const callId = `call-${(this.#calls += 1)}`;
    const result = await this.ctx.tools.execute({ callId, name: tool, arguments: args, agent, signal });
    return { text: result.content.map((block) => block.text).join("\n"), failed: result.isError === true };
  }

  /** Type a command: its result. */
  async command(agent, line) {
    return (await this.ctx.commands.execute(agent, line, [], new AbortController().signal))?.result;
  }

  /** How many listeners there are of each event that a bundle may listen to. */
  listeners() {
    const hooks = this.ctx.events._hooks;
    return Object.fromEntries(
      Reflect.ownKeys(hooks)
        .filter((event) => /^(agent|subagent|workflow|session|system-prompt)\//.test(String(event)) && hooks[event].length > 0)
        .map((event) => [String(event), hooks[event].length]),
    );
  }
}
