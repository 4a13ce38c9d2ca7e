/** The client as a program in TypeScript uses it. It is compiled, and what must not compile is marked. */

import { AmnesiaError, Client, Deadline, Refused, type FeedItem, type NoteView } from "../../daemon/amnesiad/bundles/node/amnesiad.mjs";

export async function work(memory: Client, signal: AbortSignal): Promise<NoteView[]> {
  const written = await memory.remember({ content: "deploys run on Fridays", ttl_ms: "7d", tags: ["deploy"] }, { signal });
  const created: boolean = written.created;
  await memory.supersede({ id: written.id, content: "deploys run on Mondays" });
  await memory.events({ event: "turn-end", session: "s1" });
  await memory.status();
  await memory.call("promote", { id: written.id, to: "workspace" });
  const { text, tokens }: { text: string; tokens: number } = await memory.inject({ budget_tokens: 500 });
  const reached = await memory.as({ session: "s2", agent_kind: "subagent", agent: "a1" }).whyNot({ id: written.id });

  // @ts-expect-error - a note has content
  await memory.remember({});
  // @ts-expect-error - no such field
  await memory.remember({ content: "x", colour: "red" });
  // @ts-expect-error - no such kind
  await memory.remember({ content: "x", kind: "rumor" });
  // @ts-expect-error - no such verb
  await memory.call("obliviate", {});
  // @ts-expect-error - an answer has no such field
  void written.confidence;

  void [created, text, tokens, reached.seq];
  return (await memory.recall({ query: "deploys", states: ["active"] })).notes;
}

export async function watch(memory: Client, see: (item: FeedItem) => void): Promise<void> {
  try {
    for await (const item of memory.feed({ after: "0" })) see(item);
  } catch (error) {
    if (error instanceof Refused && error.rule === "fresh") return;
    if (error instanceof AmnesiaError) console.error(`${error.message}; ${error.hint}`);
    throw error;
  }
}

/** Each kind of error has a code of its own, which the compiler knows. */
export function explain(error: AmnesiaError): string {
  if (error instanceof Refused) return error.code satisfies "refused";
  if (error instanceof Deadline) return error.code satisfies "deadline";
  return error.code;
}
