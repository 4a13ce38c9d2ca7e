/**
 * What a user interface may ask of this side: small answers, never the notes themselves.
 *
 * A person looks at them, so they speak for one. `cwd` names the directory whose workspace is meant.
 */

/**
 * @param {import("./fleet.mjs").Fleet} fleet @param {import("./amnesiad.d.mts").Client} client
 * @param {import("./blocks.mjs").Blocks} blocks
 */
export function views(fleet, client, blocks) {
  /** @param {{cwd?: string, workspace?: string}} args */
  const human = async (args) =>
    client.as({ role: "human", workspace: args.workspace ?? (await fleet.workspaceIn(args.cwd)) });
  return {
    /** Counts, tokens and the last ends. @param {{cwd?: string, workspace?: string}} [args] */
    async status(args = {}) {
      return (await human(args)).status();
    },
    /** Erase one note, or with `all` and `confirm` every one. @param {any} [args] */
    async forget(args = {}) {
      const { id, all, confirm, dry_run } = args;
      const asker = await human(args);
      const answer = await asker.forget({ id, all, confirm, dry_run });
      blocks.changed(/** @type {string} */ (asker.workspace));
      return { forgotten: answer.forgotten, summary: answer.summary, scrub: answer.scrub };
    },
    /** The latest ends. @param {{cwd?: string, workspace?: string, limit?: number}} [args] */
    async audit(args = {}) {
      return (await human(args)).audit(args.limit === undefined ? {} : { limit: args.limit });
    },
    /** The effective settings, to read. @param {{cwd?: string, workspace?: string}} [args] */
    async policy(args = {}) {
      return (await human(args)).policy();
    },
  };
}
