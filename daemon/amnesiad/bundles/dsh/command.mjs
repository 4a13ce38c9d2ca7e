/** The human command `/amnesia`: what is remembered here, and how to end it. Nothing of it reaches the model. */

import { AmnesiaError } from "./amnesiad.mjs";
import { refusal } from "./tools.mjs";
import { wordsOf } from "./words.mjs";

const USAGE = `Usage: /amnesia [status]
       /amnesia list | recall WORDS | audit | policy
       /amnesia forget ID… | forget all yes`;

/**
 * @param {import("./fleet.mjs").Fleet} fleet @param {import("./amnesiad.d.mts").Client} client
 * @param {import("./blocks.mjs").Blocks} blocks
 */
export function command(fleet, client, blocks) {
  return {
    name: "amnesia",
    description: "What is remembered here, what ended, and how to end more of it",
    input: { hint: "status | list | recall WORDS | forget ID | audit | policy" },
    /** @param {{agent: any, rawInput: string, signal: AbortSignal}} invocation */
    async handler({ agent, rawInput, signal }) {
      const [asked = "status", ...rest] = rawInput.trim().split(/\s+/).filter(Boolean);
      // Only a person types commands.
      const { session, team } = fleet.whoIs(agent);
      try {
        const workspace = await fleet.workspaceOf(agent);
        const human = client.as({ role: "human", workspace, session, team });
        const text = await answer(human, asked, rest, { signal });
        if (text === undefined) return { kind: "error", text: USAGE };
        if (asked === "forget") blocks.changed(workspace);
        return { kind: "success", text };
      } catch (failure) {
        if (failure instanceof AmnesiaError) return { kind: "error", text: refusal(failure) };
        if (signal?.aborted) return { kind: "error", text: "cancelled" };
        throw failure;
      }
    },
  };
}

/**
 * @param {import("./amnesiad.d.mts").Client} human @param {string} asked @param {string[]} rest
 * @param {import("./amnesiad.d.mts").CallOptions} options
 * @returns {Promise<string | undefined>}
 */
async function answer(human, asked, rest, options) {
  if (asked === "recall" && rest.length > 0) {
    return wordsOf("recall", await human.recall({ query: rest.join(" "), format: "text" }, options));
  }
  if (asked === "forget" && rest.length > 0) {
    const all = rest[0] === "all";
    // Whoever says more may mean less than everything.
    if (all && !(rest.length === 2 && rest[1] === "yes")) return undefined;
    return wordsOf("forget", await human.forget(all ? { all: true, confirm: true } : { ids: rest }, options));
  }
  if (rest.length > 0) return undefined;
  if (asked === "list") return wordsOf("recall", await human.recall({ limit: 100, format: "text" }, options));
  if (asked === "status") return wordsOf("status", await human.status({}, options));
  if (asked === "audit") return wordsOf("audit", await human.audit({}, options));
  if (asked === "policy") return wordsOf("policy", await human.policy({}, options));
  return undefined;
}
