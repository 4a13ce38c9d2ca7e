/** Answers of the daemon in the fewest words that an agent or a person can act on. Ids always, times as dates. */

/** Ids that are listed; nothing can be done with the rest either. */
const IDS_SHOWN = 10;

/** @type {Record<string, (answer: any, asked: Record<string, any>) => string[]>} */
const WORDS = {
  remember: (answer) => [
    `${answer.created ? "remembered" : "known already as"} ${answer.id}; ${end(answer.expires_at)}` +
      (answer.superseded?.length ? `; superseded ${ids(answer.superseded)}` : ""),
    ...(answer.warnings ?? []).map((/** @type {any} */ one) => `warning, resembles a ${one.kind} note: ${one.text}`),
    ...notices(answer),
  ],
  forget: (answer, asked) =>
    asked.dry_run
      ? [
          `${answer.ids.length} would be forgotten`,
          ...(answer.would ?? []).map((/** @type {any} */ one) => `[${one.id}] ${one.kind} ${one.state}: ${line(one.content)}`),
        ]
      : [`${answer.summary}${answer.ids.length > 0 ? ` (${ids(answer.ids)}); erasure ${answer.scrub}` : ""}`, ...notices(answer)],
  recall: (answer) => [
    ...(answer.degraded ? ["(the store is away: this may be out of date)"] : []),
    answer.text || "nothing found",
  ],
  restore: (answer) => [`restored ${answer.restored_from} as ${answer.id}`, ...notices(answer)],
  preview: (answer) => [
    answer.text || "nothing would be injected",
    ...(answer.omitted?.count ? [`left out for the budget: ${answer.omitted.count} (${ids(answer.omitted.ids)})`] : []),
  ],
  status: (answer) => [
    Object.entries(answer.counts).map(([state, count]) => `${count} ${state}`).join(", "),
    `${answer.tokens} tokens if all live notes were shown`,
    ...(answer.next_expiry_at ? [`next expiry ${date(answer.next_expiry_at)}`] : []),
    ...(answer.injection ? [`last injection: ${answer.injection.count} notes, ${answer.injection.tokens} tokens`] : []),
    ...answer.recent.map((/** @type {any} */ one) => `forgotten ${one.id} (${one.reason}) ${date(one.at)}`),
    ...(answer.degraded ? ["(the store is away: this may be out of date)"] : []),
  ],
  audit: (answer) =>
    answer.entries.length === 0
      ? ["nothing was forgotten"]
      : answer.entries.map(
          (/** @type {any} */ one) =>
            `${one.id} ${one.kind} ${one.reason} by ${one.actor} ${date(one.at)}` +
            `${one.content_hash ? ` ${one.content_hash}` : ""}${one.restorable ? " restorable" : ""}`,
        ),
  policy: (answer) =>
    Object.entries(answer.values).map(([setting, { value, origin }]) => `${setting} = ${value ?? "none"} (${origin})`),
};

/** The answer of a verb as text. @param {string} verb @param {any} answer @param {Record<string, any>} [asked] */
export function wordsOf(verb, answer, asked = {}) {
  return /** @type {any} */ (WORDS[verb])(answer, asked).join("\n");
}

/** @param {string[]} all */
function ids(all) {
  const more = all.length - IDS_SHOWN;
  return all.slice(0, IDS_SHOWN).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

/** @param {any} answer */
function notices(answer) {
  return (answer.notices ?? []).map((/** @type {string} */ notice) => `notice: ${notice}`);
}

/** @param {number} ms */
function date(ms) {
  return `${new Date(ms).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

/** @param {number | null | undefined} expiresAt */
function end(expiresAt) {
  return expiresAt ? `ends ${date(expiresAt)} unless used` : "does not expire";
}

/** A note's words on one line that can be nothing but content: no other line, no note's id or state, no frame, and
 * nothing that only a model reads. Full-width letters and brackets are written plainly first.
 * @param {string} text */
function line(text) {
  return text
    .normalize("NFKC")
    .replace(/[\p{Cc}\p{Zl}\p{Zp}]+/gu, " ")
    .replace(/[\p{Cf}\p{Cs}\p{Default_Ignorable_Code_Point}\u2800]/gu, "")
    .replace(/(amnesia)[\s\W_]+(memory)/giu, "$1·$2")
    .replaceAll("[", "⟦")
    .replaceAll("]", "⟧");
}
