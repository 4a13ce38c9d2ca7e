/** The types of `amnesiad.mjs`. Those of requests and answers, below, are made of the API's own document. */

/** For whom a client speaks. */
export interface Who {
  workspace?: string;
  session?: string;
  agent?: string;
  team?: string;
  agent_kind?: NonNullable<CallerSpec["agent_kind"]>;
  role?: NonNullable<CallerSpec["role"]>;
  on_behalf?: NonNullable<CallerSpec["on_behalf"]>;
}

/** Everything but the last and the role defaults to its `AMNESIA_*` variable. */
export interface ClientOptions extends Who {
  /** Where the daemon listens. */
  socket?: string;
  /** How long an answer may take, in milliseconds. The default is a little longer than the daemon's own deadline. */
  timeoutMs?: number;
  /** How many requests may be under way at once; the others wait. One unless told otherwise. */
  connections?: number;
}

/** How one request is made. */
export interface CallOptions {
  /** Gives up when aborted: the call rejects with the signal's reason. A write may have landed all the same. */
  signal?: AbortSignal;
  /** How long the answer may take, in milliseconds; of an export or an import, each of its pieces. */
  timeoutMs?: number;
}

/** A request as the client takes it: it fills in the workspace. */
export type Ask<V extends keyof Verbs> = Verbs[V]["request"] extends infer R
  ? R extends { workspace: string }
    ? Omit<R, "workspace"> & { workspace?: string }
    : R
  : never;

type Camel<S extends string> = S extends `${infer A}-${infer B}` ? `${A}${Capitalize<Camel<B>>}` : S;
type Arguments<B> = {} extends B ? [body?: B, options?: CallOptions] : [body: B, options?: CallOptions];

/** One method for each verb; `why-not` is `whyNot`. */
export type VerbMethods = {
  [V in keyof Verbs as Camel<V>]: (...args: Arguments<Ask<V>>) => Promise<Verbs[V]["answer"]>;
};

/** A connection to the daemon for one caller in one workspace. Nothing is sent before the first request. */
export declare class Client {
  constructor(options?: ClientOptions);
  readonly socket: string;
  readonly timeoutMs: number;
  workspace: string | undefined;
  caller: Record<string, string>;
  /** A client for another caller over the same connection. Nothing is taken over from this one's caller. */
  as(who: Who): Client;
  /**
   * Close the connections, and those of the clients that share them. What is under way or queued for them is over; a later
   * request opens a new one.
   */
  close(): void;
  /** The answer to one request. */
  call<V extends keyof Verbs>(verb: V, ...args: Arguments<Ask<V>>): Promise<Verbs[V]["answer"]>;
  /** An agent's own hook payload, answered in that agent's own form. Never repeated. */
  hook(
    agent: string,
    payload: Record<string, unknown>,
    options?: CallOptions & { workspace?: string },
  ): Promise<Record<string, unknown>>;
  /** The objects of an export, one at a time. `after` resumes behind a `seq`. */
  export(options?: CallOptions & { after?: string }): AsyncGenerator<Record<string, unknown>, void, void>;
  /** Send an export's lines, each a JSON object with or without its line break. Never repeated. */
  importNotes(
    source: Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>,
    options?: CallOptions & { dry_run?: boolean },
  ): Promise<ImportAnswer>;
  /**
   * What happens in the workspace, from now or from behind `after`, a `seq`. When the connection breaks, or the daemon is
   * away for a while, it goes on where it was; it ends with the loop around it, with `signal`, with `close`, or with a
   * refusal. Each connection begins with an item `opened`. With `unref` it keeps no process alive.
   */
  feed(options?: { after?: string; signal?: AbortSignal; unref?: boolean }): AsyncGenerator<FeedItem, void, void>;
}
export interface Client extends VerbMethods {}

/** The base of everything that the client rejects with, but for the reason of a signal that was aborted. */
export declare class AmnesiaError extends Error {
  readonly code: string;
  /** What to do about it. */
  readonly hint: string;
  /** The field of the request that is meant. */
  readonly field: string | null;
  /** The rule that said no. */
  readonly rule: string | null;
  /** What an ambiguous address could have meant. */
  readonly choices: readonly string[];
}
export declare class Invalid extends AmnesiaError { readonly code: "invalid" }
export declare class Forbidden extends AmnesiaError { readonly code: "forbidden" }
export declare class NotFound extends AmnesiaError { readonly code: "not_found" }
export declare class Ambiguous extends AmnesiaError { readonly code: "ambiguous" }
export declare class Conflict extends AmnesiaError { readonly code: "conflict" }
export declare class TooLarge extends AmnesiaError { readonly code: "too_large" }
export declare class Refused extends AmnesiaError { readonly code: "refused" }
export declare class StoreFull extends AmnesiaError { readonly code: "store_full" }
export declare class StoreUnavailable extends AmnesiaError { readonly code: "store_unavailable" }
export declare class Busy extends AmnesiaError { readonly code: "busy" }
export declare class Deadline extends AmnesiaError { readonly code: "deadline" }
export declare class Bug extends AmnesiaError { readonly code: "internal" }
export declare class DaemonUnreachable extends AmnesiaError { readonly code: "unreachable" }

/** The verbs that a body alone asks for. */
export declare const VERBS: readonly (keyof Verbs)[];
/** Those of them that take a `request_id`. */
export declare const WRITES: readonly (keyof Verbs)[];

/** Where the daemon of this user listens: `AMNESIA_SOCKET`, else what its configuration says, else the usual place. */
export declare function daemonSocket(environ: Record<string, string | undefined>): string;

// wire: begin (generated: python -m tests.node_wire)
/** A workspace-relative path and the SHA-256 (hex) its file had when the note was anchored, if it could be read. */
export interface Anchor {
  path: string;
  sha256?: string | null;
}

export interface AuditAnswer {
  seq: string;
  degraded?: boolean;
  entries: AuditEntry[];
}

export interface AuditEntry {
  id: string;
  kind: "decision" | "directive" | "episode" | "fact" | "finding" | "gotcha" | "operational" | "preference" | "reference" | "task" | "task-context";
  reason: string;
  actor: string;
  at: number;
  restorable: boolean;
  content_hash?: string | null;
}

export interface AuditRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  limit?: number;
  since?: TimeMs | null;
}

/** Answers or errors in the order of the requests: structs in the daemon, plain objects in a client. */
export interface BatchAnswer {
  answers: (RememberAnswer | RecallAnswer | InjectAnswer | FireAnswer | WhyNotAnswer | ListAnswer | InspectAnswer | HistoryAnswer | ForgetAnswer | ChangeAnswer | SupersedeAnswer | RestoreAnswer | UndoAnswer | StatusAnswer | AuditAnswer | LedgerAnswer | ExposureAnswer | PolicyAnswer | EventsAnswer | FiguresAnswer | OwnersAnswer | DeadAnswer | WorkspacesAnswer | ErrorAnswer)[];
}

/** One request of a batch, as `wire.read_item` makes it of its JSON. It inherits the batch's workspace and caller. */
export interface BatchItem {
  verb: "remember" | "recall" | "inject" | "preview" | "fire" | "why-not" | "list" | "inspect" | "history" | "forget" | "revoke" | "flag" | "supersede" | "reinstate" | "pin" | "unpin" | "renew" | "done" | "promote" | "edit" | "restore" | "undo" | "mirror" | "status" | "audit" | "ledger" | "exposure" | "policy" | "events" | "settle" | "scrub" | "verify" | "rebuild" | "check" | "owners" | "dead" | "workspaces";
  /** The verb's request; workspace and caller are the batch's. */
  body?: Record<string, unknown>;
}

/** The items stay JSON, so that what is wrong with one is no fault of the others. */
export interface BatchRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  requests: BatchItem[];
}

/** Who asks, as declared by the request. */
export interface CallerSpec {
  role?: "agent" | "human";
  agent_kind?: "continuable" | "fresh" | "main" | "subagent" | "teammate" | "workflow";
  session?: Token | null;
  agent?: Token | null;
  team?: Token | null;
  on_behalf?: "user" | null;
}

/** `changed` is false where it held already. The rest tells how the note stands now. `notices` are the secret guard's. */
export interface ChangeAnswer {
  seq: string;
  degraded?: boolean;
  id: string;
  changed: boolean;
  state: "active" | "expired" | "forgotten" | "revoked" | "stale" | "superseded";
  expires_at?: number | null;
  stale_at?: number | null;
  provenance?: "agent" | "auto" | "human" | "user-stated" | null;
  scope?: "session" | "team" | "workspace" | null;
  notices?: string[];
}

/** Compare anchors with the files they name; `paths` narrows it to notes anchored there. */
export interface CheckRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  paths?: string[];
}

/** Notes by state; every state is always there. */
export interface Counts {
  active: number;
  stale: number;
  expired: number;
  revoked: number;
  superseded: number;
  forgotten: number;
}

export interface Created {
  type: "created";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  kind: "decision" | "directive" | "episode" | "fact" | "finding" | "gotcha" | "operational" | "preference" | "reference" | "task" | "task-context";
  provenance: "agent" | "auto" | "human" | "user-stated";
  size: number;
  scope?: "session" | "team" | "workspace";
  owner?: string | null;
  incarnation?: number | null;
  author?: string | null;
  source_ref?: string | null;
  ttl_ms?: number | null;
  curve?: "ebbinghaus" | "flat" | "linear";
  pinned?: boolean;
  base?: number;
  supersedes?: string[];
  restored_from?: string | null;
}

export interface DeadAnswer {
  rows: DeadRow[];
  changed?: number;
}

/** Lists parked lifecycle events of every workspace; with `retry` or `drop` (stream ids) treats some first. With `show` the answer is that one, as it came. */
export interface DeadRequest {
  workspace?: WorkspaceName | null;
  caller?: CallerSpec;
  request_id?: Token | null;
  retry?: Seq[];
  drop?: Seq[];
  show?: Seq | null;
  limit?: number;
}

/** `event` and `workspace` as far as they can be read; `raw`, the event as it came, only where it was asked for. */
export interface DeadRow {
  id: string;
  at: number;
  error: string;
  event?: string | null;
  workspace?: string | null;
  raw?: string | null;
}

export interface Deterrent {
  id: string;
  text: string;
}

export interface DoneRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  id: NoteId;
  reason?: string | null;
}

/** One note that a dry run or an unconfirmed forget would erase. */
export interface Doomed {
  id: string;
  kind: "decision" | "directive" | "episode" | "fact" | "finding" | "gotcha" | "operational" | "preference" | "reference" | "task" | "task-context";
  state: "active" | "expired" | "forgotten" | "revoked" | "stale" | "superseded";
  content: string;
}

/** A duration: milliseconds, or text like 15s, 12h, 7d, 1d12h; above 0 and at most 100 years. */
export type DurationMs = number | string;

/** `UNSET` leaves a field as it is; a list replaces the list there was. */
export interface EditRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  id: NoteId;
  reason?: string | null;
  tags?: string[];
  anchors?: string[];
  triggers?: TriggerSpec[];
  ttl_ms?: DurationMs | null;
}

export interface Edited {
  type: "edited";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  size?: number | null;
  fields: ("anchors" | "tags" | "triggers" | "ttl_ms")[];
  ttl_ms?: number | null;
}

/** Closes an export. `notes` counts since the header, `through` is where the next one may resume. */
export interface EndLine {
  line: "end";
  through: string;
  notes: number;
}

/** The envelope of every refusal. */
export interface ErrorAnswer {
  error: ErrorBody;
}

/** What happened, to which field, by which rule, and what to do: `hint` is empty where there is nothing to say. A client takes a code that it does not know. */
export interface ErrorBody {
  code: "invalid" | "forbidden" | "not_found" | "ambiguous" | "conflict" | "too_large" | "refused" | "busy" | "internal" | "store_unavailable" | "deadline" | "store_full";
  message: string;
  hint: string;
  field?: string | null;
  rule?: string | null;
  choices?: string[];
}

/** `ids` are stream ids on the lifecycle stream, in the order of the events. */
export interface EventsAnswer {
  accepted: number;
  ids: string[];
}

/** Lifecycle events, always as a list after decoding, also where the body was a single event. */
export interface EventsRequest {
  events: LifecycleEvent[];
}

export interface Expired {
  type: "expired";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  size?: number | null;
  reason: "completed" | "decayed" | "retention" | "ttl";
}

export type ExportLine = Header | PolicyLine | OwnerLine | NoteLine | FactLine | EndLine;

/** Answered by a stream of NDJSON. */
export interface ExportRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
}

/** `total` counts the rows there are. `cut`: the ledger goes back further than `since`, where looking ended. */
export interface ExposureAnswer {
  seq: string;
  degraded?: boolean;
  id: string;
  rows: ExposureRow[];
  total: number;
  cut: boolean;
  since?: number | null;
}

/** Who was shown the note; for a human and main agents. */
export interface ExposureRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  id: NoteId;
  limit?: number;
}

/** Somebody who was shown the note: when first and last, how often by which kind of read, at which versions; and the notes written by them since they were first shown it. */
export interface ExposureRow {
  session?: string | null;
  owner?: string | null;
  actor: string;
  first_at: number;
  last_at: number;
  times: number;
  kinds: Record<string, number>;
  versions: number[];
  wrote: string[];
  wrote_count: number;
}

/** An event of the workspace itself: for the reader of the file. An import leaves it where it happened. */
export interface FactLine {
  line: "fact";
  seq: string;
  event: PolicyChanged | Scrubbed;
}

/** A note moved, or one of its facts changed. `reason` is the code, `fields` are names of what was edited. */
export interface FeedChanged {
  id: string;
  at: number;
  actor: string;
  reason?: string | null;
  by?: string | null;
  cause?: "anchor" | "decayed" | "distrusted" | null;
  provenance?: "agent" | "auto" | "human" | "user-stated" | null;
  scope?: "session" | "team" | "workspace" | null;
  ttl_ms?: number | null;
  fields?: string[];
  to?: string | null;
  target?: string | null;
  result?: "absent" | "deleted" | "failed" | "hidden" | "kept" | "shown" | null;
}

/** Notes entered a context. */
export interface FeedInjected {
  ids: string[];
  tokens: number;
  at: number;
  actor: string;
  kind: "fire" | "inject";
  deterrents: string[];
}

/** One server-sent event: `seq` resumes the feed behind it, `type` is `written`, `forgotten` … */
export type FeedItem = {
  seq: string;
  type: "opened";
  data: FeedOpened;
} | {
  seq: string;
  type: "missed";
  data: FeedMissed;
} | {
  seq: string;
  type: "written";
  data: FeedWritten;
} | {
  seq: string;
  type: "injected";
  data: FeedInjected;
} | {
  seq: string;
  type: "policy_changed";
  data: FeedPolicy;
} | {
  seq: string;
  type: "scrubbed";
  data: FeedScrubbed;
} | {
  seq: string;
  type: "edited" | "expired" | "forgotten" | "mirrored" | "pinned" | "promoted" | "reinstated" | "renewed" | "restored" | "revoked" | "stale_flagged" | "superseded" | "unpinned";
  data: FeedChanged;
};

/** Items of these types before `until` are no longer on record, and some may have been among them. */
export interface FeedMissed {
  types: string[];
  until: number;
}

/** The feed begins; its `seq` resumes it even if nothing follows. */
export interface FeedOpened {
  at: number;
}

/** A setting of the workspace changed; `new` is null where it was reset. */
export interface FeedPolicy {
  name: string;
  old: string | number | boolean | null;
  new: string | number | boolean | null;
  at: number;
  actor: string;
}

/** Words erased up to the stream id `through` are gone from the store's files, or their removal was asked for. */
export interface FeedScrubbed {
  through: string;
  result: "done" | "requested";
  at: number;
}

/** A new note. */
export interface FeedWritten {
  id: string;
  at: number;
  actor: string;
  kind: "decision" | "directive" | "episode" | "fact" | "finding" | "gotcha" | "operational" | "preference" | "reference" | "task" | "task-context";
  ttl: number | null;
}

/** Counts by name, and each problem in one sentence without a note's words. */
export interface FiguresAnswer {
  seq: string;
  degraded?: boolean;
  figures: Record<string, number>;
  problems?: string[];
}

export interface FireAnswer {
  seq: string;
  degraded?: boolean;
  notes: NoteView[];
  text: string;
  tokens: number;
  corrections?: string[];
}

export interface FireRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  event: Token;
  paths?: string[];
  command?: string | null;
  prompt?: string | null;
  turn?: TurnId | null;
}

export interface FlagRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  id: NoteId;
  reason: string;
}

/** `would` only for a dry run. `notices` are the secret guard's, and name notes that could not be forgotten. */
export interface ForgetAnswer {
  seq: string;
  degraded?: boolean;
  forgotten: number;
  ids: string[];
  summary: string;
  scrub: "done" | "pending" | "requested";
  would?: Doomed[];
  notices?: string[];
}

/** One address: id, ids, query, tags, kinds, scope, owner or all. An empty list counts as absent. */
export interface ForgetRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  id?: NoteId | null;
  ids?: NoteId[];
  query?: string | null;
  tags?: string[];
  kinds?: ("decision" | "directive" | "episode" | "fact" | "finding" | "gotcha" | "operational" | "preference" | "reference" | "task" | "task-context")[];
  scope?: "session" | "team" | "workspace" | null;
  owner?: OwnerId | null;
  all?: boolean;
  confirm?: boolean;
  dry_run?: boolean;
  reason?: string | null;
}

export interface Forgotten {
  type: "forgotten";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  reason: "agent-disposed" | "evicted" | "expired" | "manual" | "retention";
}

/** Opens an export. `through` is the log's last id, `after` where a resumed one goes on, `key` the install key's fingerprint (hashes mean something only under the same key), `at` epoch ms. */
export interface Header {
  line: "export";
  format: number;
  workspace: string;
  through: string;
  key: string;
  at: number;
  after?: string | null;
}

/** The process answers. `answered` counts answers by status since its start. */
export interface HealthAnswer {
  pid: number;
  version: string;
  in_flight: number;
  answered: Record<string, number>;
}

export interface HistoryAnswer {
  seq: string;
  degraded?: boolean;
  events: HistoryEvent[];
  cursor?: string | null;
}

/** `reason` is the code; `reason_text` the words given, while they are kept. `facts` are the event's own. */
export interface HistoryEvent {
  seq: string;
  type: string;
  at: number;
  actor: string;
  from: "active" | "expired" | "forgotten" | "revoked" | "stale" | "superseded" | null;
  to: "active" | "expired" | "forgotten" | "revoked" | "stale" | "superseded";
  reason?: string | null;
  reason_text?: string | null;
  on_behalf?: boolean;
  facts?: Record<string, unknown>;
}

export interface HistoryRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  id: NoteId;
  limit?: number;
  cursor?: string | null;
}

/** `lines` counts all that are not blank; `imported` and `skipped` (known already) count notes. */
export interface ImportAnswer {
  lines: number;
  imported: number;
  skipped: number;
  problems?: ImportProblem[];
  notices?: string[];
}

/** `line` counts from 1. */
export interface ImportProblem {
  line: number;
  code: string;
  message: string;
}

export interface InjectAnswer {
  seq: string;
  degraded?: boolean;
  text: string;
  ids: string[];
  tokens: number;
  budget_tokens: number;
  omitted: Omitted;
  deterrents: string[];
  corrections?: string[];
}

/** Also the request of preview. No `budget_tokens` means the policy's `max_injected_tokens`. */
export interface InjectRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  budget_tokens?: number | null;
  query?: string | null;
  paths?: string[];
  event?: Token | null;
}

export interface InjectionStatus {
  count: number;
  tokens: number;
  at: number;
}

export interface InspectAnswer {
  seq: string;
  degraded?: boolean;
  note: NoteView;
  history_length: number;
  text: string;
}

/** `at` shows the note as it stood at that instant. `render` asks for the answer's `text`, which comes in any case: the note as one line, a live one as agents are given it, an ended one as the warning it has become. */
export interface InspectRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  id: NoteId;
  at?: TimeMs | null;
  render?: boolean;
}

export interface LedgerAnswer {
  seq: string;
  degraded?: boolean;
  rows: LedgerRow[];
}

/** What was shown, newest first; with `entry` (a row's id) that one, its text rebuilt from log and ledger. */
export interface LedgerRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  limit?: number;
  session?: Token | null;
  entry?: Seq | null;
}

/** One recall, injection or firing: who was shown which notes, at which versions, in which order, at what cost. `text` only where one entry was asked for: the block as it was shown, in which a note erased since stands as its id and hash. */
export interface LedgerRow {
  id: string;
  at: number;
  kind: "fire" | "inject" | "recall";
  actor: string;
  ids: string[];
  versions: number[];
  tokens: number;
  deterrents: string[];
  corrections?: string[];
  session?: string | null;
  budget_tokens?: number | null;
  text?: string | null;
}

/** The core's event with every field checked, also the JSON of field `e` on the lifecycle stream. */
export interface LifecycleEvent {
  event: "agent-disposed" | "compacted" | "file-changed" | "heartbeat" | "pre-step" | "session-end" | "session-start" | "subagent-end" | "subagent-start" | "turn-end" | "workflow-agent-end";
  workspace: WorkspaceName;
  id?: Token | null;
  session?: Token | null;
  agent?: Token | null;
  agent_kind?: "continuable" | "fresh" | "main" | "subagent" | "teammate" | "workflow" | null;
  team?: Token | null;
  parent?: Token | null;
  paths?: string[];
  at?: TimeMs | null;
  source?: Token | null;
}

/** Of the events of all workspaces: how many wait to be handled, how long the oldest has, how many are parked. */
export interface LifecycleStatus {
  waiting: number;
  lag_ms: number | null;
  parked: number;
}

export interface ListAnswer {
  seq: string;
  degraded?: boolean;
  notes: NoteView[];
  cursor?: string | null;
}

export interface ListRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  kinds?: ("decision" | "directive" | "episode" | "fact" | "finding" | "gotcha" | "operational" | "preference" | "reference" | "task" | "task-context")[];
  tags?: string[];
  scope?: "session" | "team" | "workspace" | null;
  owner?: OwnerId | null;
  states?: ("active" | "expired" | "forgotten" | "revoked" | "stale" | "superseded")[];
  with_content?: boolean;
  limit?: number;
  cursor?: string | null;
}

/** What became of the item that the note mirrors in `target`, one of those its `source_ref` points at. */
export interface MirrorRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  id: NoteId;
  target: Token;
  result: "absent" | "deleted" | "failed" | "hidden" | "kept" | "shown";
}

/** What became of the item that the note mirrors in another store: the result of a governor, not a transition. `absent` was found gone already, `kept` belongs to a note that lives, `failed` was tried as often as is sensible. */
export interface Mirrored {
  type: "mirrored";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  target: string;
  result: "absent" | "deleted" | "failed" | "hidden" | "kept" | "shown";
}

export interface NextTransition {
  at: number;
  to: "active" | "expired" | "forgotten" | "revoked" | "stale" | "superseded";
}

/** A note's id, or a prefix of one of 4 characters or more that no other note has. */
export type NoteId = string;

/** A note: `seq` is the place in the log up to which the export is complete with this line, so where it may resume. `words` are there unless it is forgotten, or would be if its end were recorded; then `content_hash` is, while the audit keeps it. `more` says that the next line goes on with the same note; such a line has no `seq`. */
export interface NoteLine {
  line: "note";
  id: string;
  events: (Created | Superseded | Revoked | StaleFlagged | Reinstated | Promoted | Expired | Renewed | Pinned | Unpinned | Edited | Forgotten | Restored | Mirrored)[];
  seq?: string;
  words?: Words | null;
  content_hash?: string | null;
  more?: boolean;
}

/** A note as reads show it, settled at the time of the answer. A forgotten note has no content. */
export interface NoteView {
  id: string;
  workspace: string;
  kind: "decision" | "directive" | "episode" | "fact" | "finding" | "gotcha" | "operational" | "preference" | "reference" | "task" | "task-context";
  regime: "perishable" | "record";
  state: "active" | "expired" | "forgotten" | "revoked" | "stale" | "superseded";
  state_at: number;
  scope: "session" | "team" | "workspace";
  tags: string[];
  anchors: Anchor[];
  triggers: Trigger[];
  provenance: "agent" | "auto" | "human" | "user-stated";
  pinned: boolean;
  curve: "ebbinghaus" | "flat" | "linear";
  ttl_ms: number | null;
  expires_at: number | null;
  stale_at: number | null;
  strength: number;
  rank: number;
  trust: number;
  access_count: number;
  created_at: number;
  content?: string | null;
  causes?: ("anchor" | "decayed" | "distrusted")[];
  state_reason?: string | null;
  owner?: string | null;
  key?: string | null;
  author?: string | null;
  next_transition?: NextTransition | null;
  last_access_at?: number | null;
  supersedes?: string[];
  superseded_by?: string | null;
  restored_from?: string | null;
  source_ref?: string | null;
  mirrored?: Record<string, "absent" | "deleted" | "failed" | "hidden" | "kept" | "shown">;
}

/** One reason why a note was left out: of which verb, by which rule, and in words. */
export interface Obstacle {
  verb: "any" | "fire" | "inject" | "recall";
  rule: string;
  text: string;
}

export interface Omitted {
  count: number;
  ids: string[];
}

/** A session or team id, or session/agent. */
export type OwnerId = string;

/** An owner of scoped notes: which life of it runs, or ran last. */
export interface OwnerLine {
  line: "owner";
  owner: string;
  incarnation: number;
  open: boolean;
  agent_kind?: "continuable" | "fresh" | "main" | "subagent" | "teammate" | "workflow" | null;
}

export interface OwnerRow {
  owner: string;
  state: "closed" | "open";
  incarnation: number;
  notes: number;
  agent_kind?: "continuable" | "fresh" | "main" | "subagent" | "teammate" | "workflow" | null;
  last_seen_at?: number | null;
}

export interface OwnersAnswer {
  seq: string;
  degraded?: boolean;
  rows: OwnerRow[];
  changed?: number;
}

/** Lists the owners; with `close` ends that one first. */
export interface OwnersRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  close?: OwnerId | null;
}

export interface PinRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  id: NoteId;
  reason?: string | null;
}

export interface Pinned {
  type: "pinned";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  size?: number | null;
}

export interface PlainLine {
  kind?: "decision" | "directive" | "episode" | "fact" | "finding" | "gotcha" | "operational" | "preference" | "reference" | "task" | "task-context" | null;
  ttl_ms?: DurationMs | null;
  expires_at?: TimeMs | null;
  pinned?: boolean;
  curve?: "ebbinghaus" | "flat" | "linear" | null;
  key?: string | null;
  scope?: "session" | "team" | "workspace" | null;
  owner?: OwnerId | null;
  tags?: string[];
  anchors?: string[];
  triggers?: TriggerSpec[];
  provenance?: "agent" | "auto" | "human" | "user-stated" | null;
  source_ref?: SourceRef | null;
  /** A statement. */
  content: string;
  created_at?: TimeMs;
}

export interface PolicyAnswer {
  seq: string;
  degraded?: boolean;
  values: Record<string, PolicyValue>;
}

/** One live setting of the workspace changed; `None` as `new` means reset to the operator's value. */
export interface PolicyChanged {
  type: "policy_changed";
  at: number;
  actor: string;
  name: string;
  old?: string | number | boolean | null;
  new?: string | number | boolean | null;
  reset?: boolean;
  policy_version?: number;
}

/** The workspace's own overrides, name to canonical value. */
export interface PolicyLine {
  line: "policy";
  values: Record<string, string | number | boolean | null>;
}

/** Without `set` and `reset` it only reads. Values are checked by `core.policy.parse_setting`. */
export interface PolicyRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  set?: Record<string, string | number | boolean | null>;
  reset?: ("default_ttl" | "default_kind" | "default_curve" | "ebbinghaus_k" | "stale_strength" | "forgotten_strength" | "renewal_gain" | "renewal_bonus" | "max_injected_tokens" | "max_deterrents" | "max_store_bytes" | "max_record_bytes" | "max_item_bytes" | "auto_expire" | "record_ttl" | "audit_retention" | "ended_retention" | "restorable" | "promote_after_accesses" | "promoted_ttl" | "injection_enabled" | "injection_renews" | "child_sees" | "continuable_end" | "secret_guard" | "tie_width" | "token_counter" | "token_margin" | "trust_human" | "trust_user_stated" | "trust_agent" | "trust_auto")[];
}

/** `live` is false for a setting that is read at the daemon's start only. */
export interface PolicyValue {
  value: string | number | boolean | null;
  origin: string;
  live?: boolean;
}

export interface PromoteRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  id: NoteId;
  reason?: string | null;
  to: "agent" | "human" | "user-stated" | "workspace";
}

export interface Promoted {
  type: "promoted";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  size?: number | null;
  provenance?: "agent" | "auto" | "human" | "user-stated" | null;
  scope?: "workspace" | null;
  ttl_ms?: number | null;
}

/** How far the start has come: `stage` in words, `done` of `total` workspaces loaded. */
export interface ReadyAnswer {
  ready: boolean;
  stage: string;
  done: number;
  total: number;
}

export interface RebuildRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
}

export interface RecallAnswer {
  seq: string;
  degraded?: boolean;
  notes: RecalledNote[];
  deterrents: Deterrent[];
  text?: string | null;
}

export interface RecallRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  query?: string | null;
  kinds?: ("decision" | "directive" | "episode" | "fact" | "finding" | "gotcha" | "operational" | "preference" | "reference" | "task" | "task-context")[];
  tags?: string[];
  paths?: string[];
  owner?: OwnerId | null;
  states?: ("active" | "stale")[];
  since?: TimeMs | null;
  until?: TimeMs | null;
  limit?: number;
  explain?: boolean;
  format?: "json" | "text";
  peek?: boolean;
}

/** `relevance` and `band` only where there was a query; `explanation` only where one was asked for. */
export interface RecalledNote {
  id: string;
  workspace: string;
  kind: "decision" | "directive" | "episode" | "fact" | "finding" | "gotcha" | "operational" | "preference" | "reference" | "task" | "task-context";
  regime: "perishable" | "record";
  state: "active" | "expired" | "forgotten" | "revoked" | "stale" | "superseded";
  state_at: number;
  scope: "session" | "team" | "workspace";
  tags: string[];
  anchors: Anchor[];
  triggers: Trigger[];
  provenance: "agent" | "auto" | "human" | "user-stated";
  pinned: boolean;
  curve: "ebbinghaus" | "flat" | "linear";
  ttl_ms: number | null;
  expires_at: number | null;
  stale_at: number | null;
  strength: number;
  rank: number;
  trust: number;
  access_count: number;
  created_at: number;
  content?: string | null;
  causes?: ("anchor" | "decayed" | "distrusted")[];
  state_reason?: string | null;
  owner?: string | null;
  key?: string | null;
  author?: string | null;
  next_transition?: NextTransition | null;
  last_access_at?: number | null;
  supersedes?: string[];
  superseded_by?: string | null;
  restored_from?: string | null;
  source_ref?: string | null;
  mirrored?: Record<string, "absent" | "deleted" | "failed" | "hidden" | "kept" | "shown">;
  relevance?: number | null;
  band?: number | null;
  stale?: boolean;
  explanation?: Record<string, string | number | boolean | null> | null;
}

export interface RecentEnd {
  id: string;
  reason: string;
  at: number;
}

export interface ReinstateRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  id: NoteId;
  reason?: string | null;
}

export interface Reinstated {
  type: "reinstated";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  size?: number | null;
}

/** `created` is false when the same text lives already, under `id`. `notices` are the secret guard's. */
export interface RememberAnswer {
  seq: string;
  degraded?: boolean;
  id: string;
  created: boolean;
  ttl_ms: number | null;
  expires_at: number | null;
  stale_at: number | null;
  superseded: string[];
  warnings: Warned[];
  notices?: string[];
}

export interface RememberRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  kind?: "decision" | "directive" | "episode" | "fact" | "finding" | "gotcha" | "operational" | "preference" | "reference" | "task" | "task-context" | null;
  ttl_ms?: DurationMs | null;
  expires_at?: TimeMs | null;
  pinned?: boolean;
  curve?: "ebbinghaus" | "flat" | "linear" | null;
  key?: string | null;
  scope?: "session" | "team" | "workspace" | null;
  owner?: OwnerId | null;
  tags?: string[];
  anchors?: string[];
  triggers?: TriggerSpec[];
  provenance?: "agent" | "auto" | "human" | "user-stated" | null;
  source_ref?: SourceRef | null;
  /** A statement. */
  content: string;
  supersedes?: NoteId | null;
}

export interface RenewRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  id: NoteId;
  reason?: string | null;
}

export interface Renewed {
  type: "renewed";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  size?: number | null;
  base: number;
}

/** `notices` are the secret guard's, about the reason: the words are the note's own. */
export interface RestoreAnswer {
  seq: string;
  degraded?: boolean;
  id: string;
  restored_from: string;
  notices?: string[];
}

export interface RestoreRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  id: NoteId;
  reason?: string | null;
}

/** On the forgotten note, naming the new one that carries its words on. */
export interface Restored {
  type: "restored";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  to: string;
}

export interface RevokeRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  id: NoteId;
  reason: string;
}

export interface Revoked {
  type: "revoked";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  size?: number | null;
  reason?: "refuted";
}

export interface ScrubRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
}

/** Erased words up to stream id `through` are absent from the live data files (`done`) or a rewrite was asked of a server that is not ours (`requested`). */
export interface Scrubbed {
  type: "scrubbed";
  at: number;
  actor: string;
  through: string;
  result: "done" | "requested";
}

/** A stream id of the log. */
export type Seq = string;

export interface SettleRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
}

/** A pointer to where a note came from, not text. */
export type SourceRef = string;

export interface StaleFlagged {
  type: "stale_flagged";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  size?: number | null;
  cause: "anchor" | "decayed" | "distrusted";
}

/** A small scalar view. `tokens` is what all live notes would cost. `refusals` counts by rule what this daemon has refused in the workspace since its start. */
export interface StatusAnswer {
  seq: string;
  degraded?: boolean;
  counts: Counts;
  tokens: number;
  recent: RecentEnd[];
  refusals: Record<string, number>;
  worker: WorkerStatus;
  store: Record<string, string | number | boolean | null>;
  next_expiry_at?: number | null;
  injection?: InjectionStatus | null;
  lifecycle?: LifecycleStatus | null;
}

export interface StatusRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
}

export interface SupersedeAnswer {
  seq: string;
  degraded?: boolean;
  changed: boolean;
  id: string;
  by: string;
  warnings?: Warned[];
  notices?: string[];
}

/** `by` an existing note, or by a new one made of `content` and remember's fields. */
export interface SupersedeRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  kind?: "decision" | "directive" | "episode" | "fact" | "finding" | "gotcha" | "operational" | "preference" | "reference" | "task" | "task-context" | null;
  ttl_ms?: DurationMs | null;
  expires_at?: TimeMs | null;
  pinned?: boolean;
  curve?: "ebbinghaus" | "flat" | "linear" | null;
  key?: string | null;
  scope?: "session" | "team" | "workspace" | null;
  owner?: OwnerId | null;
  tags?: string[];
  anchors?: string[];
  triggers?: TriggerSpec[];
  provenance?: "agent" | "auto" | "human" | "user-stated" | null;
  source_ref?: SourceRef | null;
  id: NoteId;
  by?: NoteId | null;
  content?: string | null;
  reason?: string | null;
}

export interface Superseded {
  type: "superseded";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  size?: number | null;
  by: string;
}

/** An instant: epoch milliseconds, or ISO 8601; a bare date or a naive time is UTC. */
export type TimeMs = number | string;

/** An opaque id of a session, an agent, a team, a request or an event. */
export type Token = string;

/** When `fire` shows the note: every field given must match. */
export interface Trigger {
  event?: string | null;
  path?: string | null;
  command?: string | null;
  words?: string[];
  cooldown_ms?: number | null;
}

/** When `fire` shows the note: every part given must match. */
export interface TriggerSpec {
  event?: Token | null;
  path?: string | null;
  command?: string | null;
  words?: string[];
  cooldown_ms?: DurationMs | null;
}

/** An opaque id of a turn, or its number. */
export type TurnId = string | number;

/** `undone` is the type of the event that was taken back. */
export interface UndoAnswer {
  seq: string;
  degraded?: boolean;
  id: string;
  changed: boolean;
  state: "active" | "expired" | "forgotten" | "revoked" | "stale" | "superseded";
  expires_at?: number | null;
  stale_at?: number | null;
  provenance?: "agent" | "auto" | "human" | "user-stated" | null;
  scope?: "session" | "team" | "workspace" | null;
  notices?: string[];
  undone?: string | null;
}

/** Take back the note's last transition, by one more event. */
export interface UndoRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  id: NoteId;
  reason?: string | null;
}

export interface UnpinRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  request_id?: Token | null;
  id: NoteId;
  reason?: string | null;
}

export interface Unpinned {
  type: "unpinned";
  note: string;
  version: number;
  at: number;
  actor: string;
  on_behalf?: boolean;
  size?: number | null;
}

export interface VerifyRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
}

/** A new note resembles one that was revoked, superseded or has expired. */
export interface Warned {
  kind: "expired" | "revoked" | "superseded";
  id: string;
  text: string;
}

/** `recalled` and `injected` tell whether the note would be in the answer now. `place` is its place in recall's order, counted from 1; `None` where it has none. */
export interface WhyNotAnswer {
  seq: string;
  degraded?: boolean;
  id: string;
  recalled: boolean;
  injected: boolean;
  place: number | null;
  reasons: Obstacle[];
}

/** Why recall, inject and fire, asked with these fields, leave the note out. A human names in `caller` whose view is asked about; an agent asks about its own. */
export interface WhyNotRequest {
  workspace: WorkspaceName;
  caller?: CallerSpec;
  after?: Seq | null;
  id: NoteId;
  query?: string | null;
  paths?: string[];
  event?: Token | null;
  command?: string | null;
  kinds?: ("decision" | "directive" | "episode" | "fact" | "finding" | "gotcha" | "operational" | "preference" | "reference" | "task" | "task-context")[];
  tags?: string[];
  states?: ("active" | "stale")[];
  since?: TimeMs | null;
  until?: TimeMs | null;
  limit?: number;
  budget_tokens?: number | null;
}

/** Everything about a note that is text. Lives in the vault, is erased as one, never enters the log or a job. */
export interface Words {
  content: string;
  key?: string | null;
  tags?: string[];
  anchors?: Anchor[];
  triggers?: Trigger[];
  reasons?: Record<string, string>;
}

export interface WorkerStatus {
  alive: boolean;
  lag_ms: number | null;
}

/** The path or name of a workspace: usually the git common directory of a repository. */
export type WorkspaceName = string;

/** `ws` is the internal id that keys carry. `notes` are those not forgotten, where known. */
export interface WorkspaceRow {
  name: string;
  ws: string;
  notes?: number | null;
}

export interface WorkspacesAnswer {
  rows: WorkspaceRow[];
  changed?: number;
}

/** Lists the workspaces; first renames `rename` to `to`, or drops `drop` (needs `confirm`). */
export interface WorkspacesRequest {
  workspace?: WorkspaceName | null;
  caller?: CallerSpec;
  request_id?: Token | null;
  rename?: WorkspaceName | null;
  to?: WorkspaceName | null;
  drop?: WorkspaceName | null;
  confirm?: boolean;
}

/** What each verb asks and answers. */
export interface Verbs {
  /** Write a note; the same text written again is the same note. */
  "remember": { request: RememberRequest; answer: RememberAnswer };
  /** Read live notes: by relevance where there is a query, else by trust and age. */
  "recall": { request: RecallRequest; answer: RecallAnswer };
  /** Choose what enters a context, under a budget of tokens. */
  "inject": { request: InjectRequest; answer: InjectAnswer };
  /** What inject would choose now, without a trace. */
  "preview": { request: InjectRequest; answer: InjectAnswer };
  /** The notes whose triggers match an occasion, each once. */
  "fire": { request: FireRequest; answer: FireAnswer };
  /** Why recall, inject and fire leave a note out. */
  "why-not": { request: WhyNotRequest; answer: WhyNotAnswer };
  /** List notes in any state, page by page. */
  "list": { request: ListRequest; answer: ListAnswer };
  /** One note as it stands, or as it stood. */
  "inspect": { request: InspectRequest; answer: InspectAnswer };
  /** The events of one note, oldest first. */
  "history": { request: HistoryRequest; answer: HistoryAnswer };
  /** Erase notes, words and all. */
  "forget": { request: ForgetRequest; answer: ForgetAnswer };
  /** Say that a note is wrong. */
  "revoke": { request: RevokeRequest; answer: ChangeAnswer };
  /** Say that a note is in doubt. */
  "flag": { request: FlagRequest; answer: ChangeAnswer };
  /** Put another note in a note's place. */
  "supersede": { request: SupersedeRequest; answer: SupersedeAnswer };
  /** Bring back a note that ended and was not erased. */
  "reinstate": { request: ReinstateRequest; answer: ChangeAnswer };
  /** Stop a note's clock. */
  "pin": { request: PinRequest; answer: ChangeAnswer };
  /** Let a note's clock run again. */
  "unpin": { request: UnpinRequest; answer: ChangeAnswer };
  /** Restart a note's shelf life. */
  "renew": { request: RenewRequest; answer: ChangeAnswer };
  /** End a task as completed. */
  "done": { request: DoneRequest; answer: ChangeAnswer };
  /** Raise a note: to the workspace, or to a higher provenance. */
  "promote": { request: PromoteRequest; answer: ChangeAnswer };
  /** Replace a note's tags, anchors, triggers or TTL. */
  "edit": { request: EditRequest; answer: ChangeAnswer };
  /** Make a new note of a forgotten one, while its copy is kept. */
  "restore": { request: RestoreRequest; answer: RestoreAnswer };
  /** Take back a note's last transition. */
  "undo": { request: UndoRequest; answer: UndoAnswer };
  /** Record what became of the item that a note mirrors in another store. */
  "mirror": { request: MirrorRequest; answer: ChangeAnswer };
  /** Counts, health, and what ended last. */
  "status": { request: StatusRequest; answer: StatusAnswer };
  /** What was forgotten: by whom, when and why; never the words. */
  "audit": { request: AuditRequest; answer: AuditAnswer };
  /** What was shown to whom, newest first. */
  "ledger": { request: LedgerRequest; answer: LedgerAnswer };
  /** Who was shown a note, and what they wrote afterwards. */
  "exposure": { request: ExposureRequest; answer: ExposureAnswer };
  /** Read the policy of a workspace, or change it. */
  "policy": { request: PolicyRequest; answer: PolicyAnswer };
  /** Report lifecycle events of agents: one, or several. */
  "events": { request: LifecycleEvent | EventsRequest; answer: EventsAnswer };
  /** Several requests in one, each answered on its own. */
  "batch": { request: BatchRequest; answer: BatchAnswer };
  /** Write down what time owes the notes. */
  "settle": { request: SettleRequest; answer: FiguresAnswer };
  /** Have erased words leave the store's files. */
  "scrub": { request: ScrubRequest; answer: FiguresAnswer };
  /** Prove that the state follows from the log. */
  "verify": { request: VerifyRequest; answer: FiguresAnswer };
  /** Make the state again from the log. */
  "rebuild": { request: RebuildRequest; answer: FiguresAnswer };
  /** Compare the anchors of notes with the files they name. */
  "check": { request: CheckRequest; answer: FiguresAnswer };
  /** List sessions, agents and teams that own notes, or end one. */
  "owners": { request: OwnersRequest; answer: OwnersAnswer };
  /** List lifecycle events that could not be handled; retry or drop some. */
  "dead": { request: DeadRequest; answer: DeadAnswer };
  /** List workspaces; rename or drop one. */
  "workspaces": { request: WorkspacesRequest; answer: WorkspacesAnswer };
}
// wire: end
