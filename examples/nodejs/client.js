// A small client for quorumlog's gRPC interface, to copy and to change.
//
// The interface is read from proto/quorumlog/v1 when it starts; nothing is generated. Every method
// returns a promise or an async iterator, has a deadline, and fails with a QuorumlogError that has
// the broker's typed detail.
'use strict';

const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const PROTO = process.env.QUORUMLOG_PROTO || path.join(__dirname, '..', '..', 'proto');
const DEADLINE_MS = 30_000;
const COMPRESSIONS = ['NONE', 'GZIP', 'SNAPPY', 'LZ4', 'ZSTD'];
const MESSAGE_BYTES_MAX = (64 << 20) + (64 << 10); // the broker's own bound; the default is 4 MiB

const definition = loader.loadSync(
  [
    'quorumlog/v1/log.proto',
    'quorumlog/v1/admin.proto',
    'quorumlog/v1/groups.proto',
    'quorumlog/v1/transactions.proto',
    path.join(__dirname, 'standard.proto'),
  ],
  {
    includeDirs: [PROTO],
    keepCase: true, // field names as in the .proto files
    longs: Number, // offsets and milliseconds stay below 2^53
    enums: String,
    defaults: true, // absent fields are zero
  },
);
const { quorumlog } = grpc.loadPackageDefinition(definition);

/** A failed call, or a failed part of one. Check its `name`. */
class QuorumlogError extends Error {
  constructor(detail, status, cause) {
    super(detail.message, { cause });
    this.name = detail.name; // such as UNKNOWN_TOPIC_OR_PARTITION, or the gRPC status without a detail
    this.code = detail.code; // the Kafka protocol's number
    this.status = status; // the gRPC status by name
    this.retriable = detail.retriable; // the same request may succeed later
    this.topic = detail.topic;
    this.partition = detail.partition;
    this.leaderAddress = detail.leader_address; // the leader's address, if it is known
  }

  /** The error of a failed call: its typed detail if it has one. */
  static of(failure) {
    const status = grpc.status[failure.code] ?? 'UNKNOWN';
    for (const raw of failure.metadata?.get('grpc-status-details-bin') ?? []) {
      for (const any of definition['standard.Status'].deserialize(raw).details) {
        if (any.type_url.endsWith('/quorumlog.v1.Error')) {
          const detail = definition['quorumlog.v1.Error'].deserialize(any.value);
          return new QuorumlogError(detail, status, failure);
        }
      }
    }
    // gRPC's own: an expired deadline, a cancelled call, or a broken connection (outcome unknown).
    const detail = { name: status, message: failure.details || failure.message };
    detail.retriable = status === 'UNAVAILABLE' || status === 'DEADLINE_EXCEEDED';
    return new QuorumlogError(detail, status, failure);
  }
}

/** One broker, over one connection. Close it when done. */
class Client {
  /** `credentials`: see login.js; without them nothing is encrypted, and the client is anonymous. */
  constructor(address = '127.0.0.1:9094', credentials = grpc.credentials.createInsecure()) {
    const options = {
      'grpc.max_receive_message_length': MESSAGE_BYTES_MAX,
      'grpc.max_send_message_length': MESSAGE_BYTES_MAX,
      'grpc.keepalive_time_ms': 20_000, // detect a connection that broke without a reset
    };
    this._session = credentials.session;
    this._base = new grpc.Client(address, credentials, options);
    const channel = { channelOverride: this._base.getChannel() };
    this._log = new quorumlog.v1.Log(address, credentials, channel);
    this._admin = new quorumlog.v1.Admin(address, credentials, channel);
    this._groups = new quorumlog.v1.Groups(address, credentials, channel);
    this._transactions = new quorumlog.v1.Transactions(address, credentials, channel);
  }

  close() {
    this._base.close();
    this._session?.close();
  }

  // --- topics ----------------------------------------------------------------------------------

  /** Create a topic, which can usually be used at once; configs such as {'retention.ms': '1000'}. */
  async createTopic(name, { partitions = 1, configs = {} } = {}) {
    const request = { name, partitions, configs: [] };
    for (const [key, value] of Object.entries(configs)) {
      request.configs.push({ name: key, value });
    }
    return (await call(this._admin, 'CreateTopic', request)).topic;
  }

  async describeTopic(name) {
    const { results } = await call(this._admin, 'DescribeTopics', { names: [name] });
    return whole(results[0]).topic;
  }

  async deleteTopic(name) {
    await call(this._admin, 'DeleteTopic', { name });
  }

  // --- records ---------------------------------------------------------------------------------

  /**
   * Store records {key, value, headers, timestamp_ms}, each field optional; texts become
   * UTF-8. Without `partition` the key determines it. Returns [{partition, offset}], one
   * for each record; throws if one was not stored, with the positions of the others in `stored`.
   */
  async publish(topic, records, { partition, compression = 'NONE', timeoutMs, producer } = {}) {
    if (!COMPRESSIONS.includes(compression)) {
      throw new TypeError(`${compression} is no compression: give ${COMPRESSIONS.join(', ')}`);
    }
    const request = { topic, partition, compression: `COMPRESSION_${compression}`, ...producer };
    request.errors_in_results = true; // read below
    request.records = records.map(({ headers = {}, key, value, timestamp_ms }) => ({
      key: bytes(key),
      value: bytes(value),
      timestamp_ms: timestamp_ms?.valueOf(), // may be a Date
      headers: Object.entries(headers).map(([name, text]) => ({ key: name, value: bytes(text) })),
    }));
    const { results } = await call(this._log, 'Publish', request, timeoutMs);
    const stored = [];
    for (const result of results.filter((one) => !one.error)) {
      result.records.forEach((index, step) => {
        stored[index] = { partition: result.partition, offset: result.base_offset + step };
      });
    }
    const failed = results.find((one) => one.error);
    if (failed) {
      throw Object.assign(new QuorumlogError(failed.error, 'OK'), { stored });
    }
    return stored;
  }

  /**
   * Yield the records of one partition from an offset, 'earliest', 'latest' or a Date, up to `end`
   * (an offset, exclusive) or forever. Leave the loop, or abort the signal, to cancel: the broker
   * then stops reading. A slow loop slows the broker down (flow control). With `committed` only
   * records of committed transactions and those outside of transactions are returned.
   */
  async *subscribe(
    topic,
    { partition = 0, from = 'earliest', end, committed = true, signal, timeoutMs } = {},
  ) {
    const request = { topic, partition, decoded: true, end_offset: end, isolation: isolation(committed) };
    if (from instanceof Date) {
      request.start_time_ms = from.getTime();
    } else {
      request.offset = Number.isInteger(from) ? from : special(from);
    }
    const stream = this._log.Subscribe(request, deadline(timeoutMs ?? Infinity));
    const cancel = () => stream.cancel();
    signal?.addEventListener('abort', cancel, { once: true });
    try {
      if (signal?.aborted) {
        cancel();
      }
      for await (const response of stream) {
        yield* response.records; // none: a keepalive without new records
      }
    } catch (failure) {
      throw QuorumlogError.of(failure);
    } finally {
      signal?.removeEventListener('abort', cancel);
      stream.cancel();
    }
  }

  /**
   * Return the offset of 'earliest', 'latest' or the first record at or after a Date; -1: none.
   * 'latest' is the end of the records that `subscribe` with the same `committed` yields.
   */
  async offset(topic, partition, position, { committed = true } = {}) {
    const timestamp_ms = position instanceof Date ? position.getTime() : special(position);
    const request = {
      partitions: [{ topic, partition, timestamp_ms }],
      isolation: isolation(committed),
    };
    return whole((await call(this._log, 'ListOffsets', request)).results[0]).offset;
  }

  // --- transactions ----------------------------------------------------------------------------

  /**
   * A producer with transactions. It fences an earlier producer of the same id, and ends its
   * transaction; a transaction that takes longer than `transactionTimeoutMs` is aborted.
   */
  async transactionalProducer(transactionalId, { transactionTimeoutMs = 60_000 } = {}) {
    const request = { transactional_id: transactionalId, timeout_ms: transactionTimeoutMs };
    const { producer } = await repeat(() => call(this._transactions, 'InitProducerId', request));
    return new TransactionalProducer(this, transactionalId, producer);
  }

  /** The offset of the next record that a group reads from a partition; -1: none is committed. */
  async committedOffset(group, topic, partition) {
    const request = { group, partitions: [{ topic, partition }], require_stable: true };
    const ask = async () => whole((await call(this._groups, 'FetchOffsets', request)).results[0]);
    return (await repeat(ask)).offset.offset;
  }

  // --- health ----------------------------------------------------------------------------------

  /** SERVING, or NOT_SERVING while the broker starts and stops. */
  async health(service = '') {
    const asked = definition['standard.HealthCheckRequest'];
    const answered = definition['standard.HealthCheckResponse'];
    const answer = await new Promise((resolve, reject) => {
      this._base.makeUnaryRequest(
        '/grpc.health.v1.Health/Check',
        asked.serialize,
        answered.deserialize,
        { service },
        new grpc.Metadata(),
        deadline(DEADLINE_MS),
        (failure, value) => (failure ? reject(QuorumlogError.of(failure)) : resolve(value)),
      );
    });
    return answer.status;
  }
}

/**
 * Commits records and offsets atomically. After an error abort, and repeat the
 * transaction; an error of `commit` or `abort` itself, other than TRANSACTION_ABORTABLE, ends the
 * producer: create another one with its id.
 */
class TransactionalProducer {
  constructor(client, transactionalId, identity) {
    this._client = client;
    this._id = transactionalId;
    this._begin(identity);
  }

  _begin(identity) {
    this._identity = identity;
    this._sequences = new Map(); // by topic and partition: the records that were sent in this epoch
    this._isBegun = false;
  }

  /** Store records of one partition in the transaction, as `Client.publish`. */
  async publish(topic, partition, records, options = {}) {
    const place = `${topic}/${partition}`;
    const sequence = this._sequences.get(place) ?? 0;
    this._isBegun = true;
    const producer = { producer: this._identity, base_sequence: sequence, transactional_id: this._id };
    const send = () =>
      this._client.publish(topic, records, { ...options, partition, producer });
    const stored = await repeat(send); // the same sequence again: stored once
    this._sequences.set(place, sequence + records.length);
    return stored;
  }

  /** Commit the offsets of a group with the transaction: [{topic, partition, offset}]. */
  async sendOffsets(group, offsets) {
    this._isBegun = true;
    const request = {
      transactional_id: this._id,
      producer: this._identity,
      commit: { group, offsets },
    };
    await repeat(async () => {
      const { results } = await call(this._client._transactions, 'AddOffsets', request);
      results.forEach(whole);
    });
  }

  async commit() {
    await this._end(true);
  }

  async abort() {
    await this._end(false);
  }

  async _end(commit) {
    if (!this._isBegun) {
      return;
    }
    const request = { transactional_id: this._id, producer: this._identity, commit };
    const end = () => call(this._client._transactions, 'EndTransaction', request);
    this._begin((await repeat(end)).producer); // of the next transaction: a higher epoch
  }
}

/** Repeat a call while its error is retriable, until the deadline. */
async function repeat(attempt, timeoutMs = DEADLINE_MS) {
  const until = Date.now() + timeoutMs;
  for (let pauseMs = 20; ; pauseMs = Math.min(2 * pauseMs, 1_000)) {
    try {
      return await attempt();
    } catch (error) {
      if (!error.retriable || Date.now() + pauseMs > until) {
        throw error;
      }
    }
    await new Promise((resume) => setTimeout(resume, pauseMs));
  }
}

function isolation(committed) {
  return committed ? 'ISOLATION_READ_COMMITTED' : 'ISOLATION_READ_UNCOMMITTED';
}

function call(service, method, request, timeoutMs = DEADLINE_MS) {
  return new Promise((resolve, reject) => {
    service[method](request, deadline(timeoutMs), (failure, answer) =>
      failure ? reject(QuorumlogError.of(failure)) : resolve(answer),
    );
  });
}

function deadline(timeoutMs) {
  return { deadline: timeoutMs === Infinity ? Infinity : Date.now() + timeoutMs };
}

/** Return a result, or throw its error. */
function whole(result) {
  if (result.error) {
    throw new QuorumlogError(result.error, 'OK');
  }
  return result;
}

/** The broker's number for a position without one. */
function special(position) {
  const number = { latest: -1, earliest: -2 }[position];
  if (number === undefined) {
    throw new TypeError(`${position} is no position: give 'earliest', 'latest' or a Date`);
  }
  return number;
}

/** Return a text as UTF-8; null and undefined stay null. Other types would be omitted. */
function bytes(value) {
  if (typeof value === 'string') {
    return Buffer.from(value);
  }
  if (value != null && !(value instanceof Uint8Array)) {
    throw new TypeError(`${value} is neither a text nor bytes: give JSON.stringify() of it, or a Buffer`);
  }
  return value;
}

module.exports = { Client, QuorumlogError };
