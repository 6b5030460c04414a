// @ts-check
/**
 * What the REST API answers, for editors and `tsc --checkJs`; nothing here runs or is loaded.
 * Made by docs/generate_api_types.py.
 *
 * @typedef {{
 *   "in-per-s": number, "out-per-s": number, "bytes-in-per-s": number, "bytes-out-per-s": number,
 * }} Rates
 *
 * @typedef {{
 *   "read-records": number, "read-bytes": number, "write-records": number, "write-bytes": number,
 *   "accumulated-busy-time": number, "accumulated-backpressured-time": number,
 *   "accumulated-idle-time": number,
 * }} Totals
 *
 * @typedef {{
 *   name: string, "records-in": number, "records-out": number, "records-skipped": number,
 *   "dead-letters": number, "late-records-dropped": number, "most-late-ms": number,
 * }} Operator
 *
 * @typedef {{
 *   status: string, metrics: Totals, rates: Rates, busy: number, backpressured: number,
 *   "soft-backpressured": number, "hard-backpressured": number, idle: number, cpu: number,
 *   watermark: number | null, "watermark-lag-ms": number | null, "latency-p50-ms": number | null,
 *   "latency-p99-ms": number | null, "state-bytes": number | null, "lag-records": number | null,
 *   "lag-bytes": number | null, "lag-ms": number | null, id: string, name: string,
 *   operators: Operator[], parallelism: number, "max-parallelism": number,
 *   "slot-sharing-group": string, "is-source": boolean, tasks: Record<string, number>,
 *   column: number, row: number, "max-busy": number, "max-backpressured": number,
 * }} Vertex
 *
 * @typedef {{
 *   source: string, target: string, ship: string, output: number, gate: number,
 *   "records-per-s": number, "bytes-per-s": number, backlog: number,
 * }} Edge
 *
 * @typedef {{
 *   vertex: number, name: string, parallelism: number, suggested: number, rate: number,
 *   "true-rate": number, "target-rate": number, busy: number, backpressured: number,
 *   "limited-by": string,
 * }} Advice
 *
 * @typedef {{
 *   vertex: number, operator: string, summary: string, late: number, "most-late-ms": number,
 *   skipped: number, "dead-letters": number,
 * }} LeftOut
 *
 * @typedef {{
 *   cause: string, summary: string, vertex: number, subtask: number, keys: [string, number][],
 *   line: string, evidence: string[], rate: number, "possible-rate": number, "next-vertex": number,
 *   advice: Advice[], "window-s": number, complete: boolean, "advised-rate": number,
 *   headline: string, "left-out": LeftOut[],
 * }} Diagnosis
 *
 * @typedef {{
 *   "at-ms": number, attempt: number, kind: string, message: string, task: string, vertex: number,
 *   subtask: number, host: string, operator: string, record: string, traceback: string,
 *   restarted: boolean,
 * }} Failure
 *
 * @typedef {{
 *   jid: string, name: string, state: string, "start-time": number, "end-time": number,
 *   duration: number, now: number, timestamps: Record<string, number>, restarts: number,
 *   batch: boolean, vertices: Vertex[], edges: Edge[], "latest-failure": Failure | null,
 *   why: Diagnosis | null,
 * }} Job
 *
 * @typedef {{
 *   channels: number, "queued-buffers": number, "queued-bytes": number, backlog: number,
 *   credit: number, "exclusive-in-use": number, "exclusive-total": number,
 *   "floating-in-use": number, "pool-size": number,
 * }} Gate
 *
 * @typedef {{
 *   records: number, bytes: number, buffers: number, "queued-buffers": number,
 *   "queued-bytes": number, "pool-size": number, "pool-in-use": number,
 * }} Output
 *
 * @typedef {{
 *   name: string, "records-in": number, "records-out": number, skipped: number,
 *   "dead-letters": number, late: number, "most-late-ms": number,
 * }} OperatorOfTask
 *
 * @typedef {{
 *   operator: string, capacity: number, "in-flight": number, "full-ms": number,
 * }} AsyncCalls
 *
 * @typedef {{
 *   operator: string, calls: number, records: number, "in-flight": number, "throttled-ms": number,
 *   refused: number, retries: number, splits: number, failures: number, "cache-hits": number,
 *   "cache-misses": number,
 * }} BatchCalls
 *
 * @typedef {{
 *   operator: string, scope: string[], name: string, kind: string, values: Record<string, number>,
 * }} UserFigure
 *
 * @typedef {{
 *   status: string, metrics: Totals, rates: Rates, busy: number, backpressured: number,
 *   "soft-backpressured": number, "hard-backpressured": number, idle: number, cpu: number,
 *   watermark: number | null, "watermark-lag-ms": number | null, "latency-p50-ms": number | null,
 *   "latency-p99-ms": number | null, "state-bytes": number | null, "lag-records": number | null,
 *   "lag-bytes": number | null, "lag-ms": number | null, subtask: number, slot: number,
 *   host: string, "input-watermarks": (number | null)[], "queued-in": number, "queued-out": number,
 *   "buffer-size": number, "in-flight-ms": number, gates: Gate[], outputs: Output[],
 *   operators: OperatorOfTask[], "async-calls": AsyncCalls[], "batch-calls": BatchCalls[],
 *   user: UserFigure[],
 * }} Subtask
 *
 * @typedef {{
 *   gate: number, channel: number, producer: string, "is-local": boolean, "queued-buffers": number,
 *   "queued-bytes": number, backlog: number, credit: number, exclusive: number, floating: number,
 *   blocked: boolean, "bytes-in": number, "buffers-in": number, "is-placed": boolean,
 *   "has-ended": boolean,
 * }} Channel
 *
 * @typedef {{
 *   channel: number, kind: string, text: string, key: string | null, "timestamp-ms": number | null,
 *   place: string,
 * }} WaitingEntry
 *
 * @typedef {{
 *   checkpoint: number, kind: string, status: string, "triggered-at-ms": number, "took-ms": number,
 *   "state-bytes": number, "in-flight-bytes": number, unaligned: boolean, path: string,
 *   problem: string, tasks: number, parts: CheckpointPart[],
 * }} Checkpoint
 *
 * @typedef {{
 *   task: string, vertex: number, subtask: number, "took-ms": number, "align-ms": number,
 *   "sync-ms": number, "async-ms": number, "state-bytes": number, "in-flight-bytes": number,
 *   unaligned: boolean,
 * }} CheckpointPart
 *
 * @typedef {{
 *   number: number, "at-ms": number, level: string, logger: string, message: string, task: string,
 *   subtask: number, attempt: number, operator: string, host: string, traceback: string,
 * }} LogLine
 *
 * @typedef {{
 *   "web-cancel": boolean, "web-savepoint": boolean, peek: boolean,
 * }} Features
 *
 * @typedef {{
 *   version: string, "refresh-interval": number, features: Features, "needs-token": boolean,
 * }} Config
 *
 * @typedef {{name: string, value: number, children?: Frame[]}} Frame
 *
 * @typedef {{
 *   api: import("./api.js").Api, connection: import("./connection.js").Connection,
 *   config: Config, signal: AbortSignal,
 * }} Context what every view gets; `signal` tells it that it is gone
 */
export {};
