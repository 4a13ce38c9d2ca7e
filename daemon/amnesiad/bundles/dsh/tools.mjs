/** The seven tools that a model sees. Their words are those of amnesiad's other faces, less what DSH knows by itself. */

import { readFileSync } from "node:fs";

import { AmnesiaError } from "./amnesiad.mjs";
import { wordsOf } from "./words.mjs";

const OFFERED = ["remember", "forget", "status", "audit", "recall", "restore", "preview"];
/** Who asks and where is known of the agent that calls. */
const KNOWN = new Set(["workspace", "session", "agent", "role"]);
/** How much of an unknown argument's name an error repeats. */
const MAX_NAME_CHARS = 64;
/** The verbs after which other notes may be shown. */
const WRITES = new Set(["remember", "forget", "restore"]);

/** @type {any[]} */
const TOLD = JSON.parse(readFileSync(new URL("./tools.json", import.meta.url), "utf8")).tools;

/**
 * @param {import("./fleet.mjs").Fleet} fleet @param {import("./amnesiad.d.mts").Client} client
 * @param {import("./blocks.mjs").Blocks} blocks
 */
export function tools(fleet, client, blocks) {
  return OFFERED.map((verb) => {
    const told = TOLD.find((tool) => tool.name === `amnesia_${verb}`);
    const { properties, ...schema } = told.inputSchema;
    const parameters = {
      ...schema,
      properties: Object.fromEntries(Object.entries(properties).filter(([name]) => !KNOWN.has(name))),
    };
    return {
      name: told.name,
      description: told.description,
      parameters,
      output: {
        schema: { type: "string" },
        render: (/** @type {unknown} */ _args, /** @type {string} */ text) => [{ type: "text", text }],
      },
      isConcurrencySafe: () => !WRITES.has(verb),
      presentCall: (/** @type {unknown} */ args) => ({ card: "generic", title: told.title, kind: "other", rawInput: args }),
      /** @param {any} args @param {any} exec */
      async execute(args, exec) {
        if (!exec.agent) throw new Error("the call names no agent, so there is no telling whose notes are meant");
        const { on_behalf, ttl, ...fields } = given(args ?? {}, parameters.properties, told.name);
        const who = { ...fleet.whoIs(exec.agent), ...(on_behalf === undefined ? {} : { on_behalf }) };
        const workspace = await fleet.workspaceOf(exec.agent);
        const body = {
          ...fields,
          ...(ttl === undefined ? {} : { ttl_ms: ttl }),
          ...(verb === "recall" ? { format: "text" } : {}),
        };
        try {
          const answer = await client.as({ ...who, workspace }).call(/** @type {any} */ (verb), body, { signal: exec.signal });
          if (WRITES.has(verb)) blocks.changed(workspace);
          return wordsOf(verb, answer, fields);
        } catch (failure) {
          throw failure instanceof AmnesiaError ? new Error(refusal(failure), { cause: failure }) : failure;
        }
      },
    };
  });
}

/** The arguments that say something; models fill in null for what they do not use.
 * @param {Record<string, any>} args @param {Record<string, any>} known @param {string} tool */
function given(args, known, tool) {
  for (const name of Object.keys(args)) {
    if (!Object.hasOwn(known, name)) throw new Error(`invalid: ${name.slice(0, MAX_NAME_CHARS)} is not an argument of ${tool}; known are ${Object.keys(known).join(", ")}`);
  }
  return Object.fromEntries(Object.entries(args).filter(([, value]) => value !== null && value !== undefined));
}

/** @param {AmnesiaError} error */
export function refusal(error) {
  const choices = error.choices.length > 0 ? `\none of: ${error.choices.join(", ")}` : "";
  return `${error.code}: ${error.message}${choices}${error.hint ? `\nhint: ${error.hint}` : ""}`;
}
