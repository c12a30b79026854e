// Executes the commands of tests/conformance with KafkaJS: a line of JSON in, a line of JSON out, in
// order. Bytes are encoded as base64. A consumer of KafkaJS is always in a group; so records are read
// with the internal parts of its consumer that fetch.
'use strict'

const readline = require('node:readline')
const zlib = require('node:zlib')
const { promisify } = require('node:util')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const Batch = require('kafkajs/src/consumer/batch')
const SnappyCodec = require('kafkajs-snappy')

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  zstd: CompressionTypes.ZSTD,
}
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => promisify(zlib.zstdCompress)(encoder.buffer),
  decompress: async buffer => promisify(zlib.zstdDecompress)(buffer),
})

const ACKS = { 0: 0, 1: 1, all: -1 }
const TOPIC = 2 // the type of resource
const OFFSET_OUT_OF_RANGE = 1
const TIMES = { beginning: '-2', end: '-1' }

const open = new Map() // open clients by number
let lastNumber = 0
let kafka

const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))
const text = buffer => (buffer === null || buffer === undefined ? null : buffer.toString('base64'))

function keep(thing) {
  open.set(++lastNumber, thing)
  return lastNumber
}

function headersOf(pairs) {
  const headers = {}
  for (const [name, value] of pairs) (headers[name] ??= []).push(bytes(value))
  return headers
}

function pairsOf(headers) {
  return Object.entries(headers).flatMap(([name, values]) =>
    (Array.isArray(values) ? values : [values]).map(value => [name, text(value)])
  )
}

async function sendRecords(sender, { topic, records }, options) {
  const messages = records.map(record => ({
    key: bytes(record.key),
    value: bytes(record.value),
    headers: headersOf(record.headers),
    ...(record.partition === null ? {} : { partition: record.partition }),
    ...(record.timestamp_ms === null ? {} : { timestamp: String(record.timestamp_ms) }),
  }))
  const told = await sender.send({ topic, messages, timeout: 10000, ...options })
  if (records.some(record => record.partition === null)) return [] // KafkaJS reports positions by partition only
  const bases = new Map(told.map(part => [part.partition, Number(part.baseOffset ?? -1)]))
  return records.map(({ partition }) => {
    const offset = bases.get(partition) ?? -1
    if (offset >= 0) bases.set(partition, offset + 1)
    return { partition, offset }
  })
}

class Writer {
  constructor({ acks, codec, idempotent }) {
    this.acks = ACKS[acks]
    this.compression = CODECS[codec]
    this.producer = kafka.producer({ idempotent, maxInFlightRequests: idempotent ? 1 : null })
  }

  send(request) {
    return sendRecords(this.producer, request, { acks: this.acks, compression: this.compression })
  }

  close() {
    return this.producer.disconnect()
  }
}

class TransactionalWriter {
  constructor({ id, timeout_ms: transactionTimeout }) {
    this.producer = kafka.producer({
      transactionalId: id,
      transactionTimeout,
      idempotent: true,
      maxInFlightRequests: 1,
    })
  }

  async begin() {
    this.transaction = await this.producer.transaction()
  }

  send(request) {
    return sendRecords(this.transaction, request, { acks: -1 })
  }

  sendOffsets({ member, topic, offsets }) {
    const partitions = offsets.map(([partition, offset]) => ({ partition, offset: String(offset) }))
    return this.transaction.sendOffsets({
      consumerGroupId: open.get(member).group,
      topics: [{ topic, partitions }],
    })
  }

  commit() {
    return this.transaction.commit()
  }

  abort() {
    return this.transaction.abort()
  }

  close() {
    return this.producer.disconnect()
  }
}

class Member {
  constructor(group, topic, heartbeatMs) {
    this.group = group
    this.topic = topic
    this.owned = []
    this.found = []
    this.next = new Map() // by partition
    this.consumer = kafka.consumer({ groupId: group, heartbeatInterval: heartbeatMs, maxWaitTimeInMs: 100 })
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.owned = payload.memberAssignment[topic] ?? []
    })
    this.consumer.on(this.consumer.events.REBALANCING, () => (this.owned = []))
  }

  async start() {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.topic], fromBeginning: true })
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        this.found.push({
          partition,
          offset: Number(message.offset),
          timestamp_ms: Number(message.timestamp),
          key: text(message.key),
          value: text(message.value),
          headers: pairsOf(message.headers),
        })
      },
    })
  }

  async poll(withinMs) {
    const end = Date.now() + withinMs
    while (this.found.length === 0 && Date.now() < end) {
      await new Promise(resolve => setTimeout(resolve, 20))
    }
    const found = this.found
    this.found = []
    for (const { partition, offset } of found) this.next.set(partition, offset + 1)
    return found
  }

  async commit() {
    const offsets = [...this.next].filter(([partition]) => this.owned.includes(partition))
    await this.consumer.commitOffsets(
      offsets.map(([partition, offset]) => ({ topic: this.topic, partition, offset: String(offset) }))
    )
  }

  close() {
    return this.consumer.disconnect()
  }
}

class Reader {
  constructor(topic, fetchBytes, waitMs, isolationLevel) {
    const secret = Object.getOwnPropertySymbols(kafka)
    const create = secret.find(symbol => symbol.description.endsWith('createCluster'))
    this.isolationLevel = isolationLevel
    this.cluster = kafka[create]({ metadataMaxAge: 10000, isolationLevel })
    this.topic = topic
    this.fetchBytes = fetchBytes
    this.waitMs = waitMs
    this.places = new Map()
    this.paused = new Set()
  }

  async start(starts) {
    await this.cluster.connect()
    await this.cluster.addTargetTopic(this.topic)
    for (const [partition, to] of Object.entries(starts)) await this.seek(Number(partition), to)
  }

  async offset(partition, time) {
    const asked = [{ topic: this.topic, partitions: [{ partition }], fromTimestamp: time }]
    const [found] = await this.cluster.fetchTopicsOffset(asked)
    return Number(found.partitions[0].offset)
  }

  async seek(partition, to) {
    const offset = to in TIMES ? await this.offset(partition, TIMES[to]) : to
    this.places.set(partition, offset)
  }

  async poll(withinMs) {
    const end = Date.now() + withinMs
    const found = []
    do {
      const before = Date.now()
      try {
        for (const partition of this.places.keys()) {
          if (!this.paused.has(partition)) found.push(...(await this.fetch(partition)))
        }
      } catch (error) {
        if (error.code === OFFSET_OUT_OF_RANGE) throw error
        await this.cluster.refreshMetadata()
      }
      if (found.length === 0 && Date.now() - before < this.waitMs) {
        await new Promise(resolve => setTimeout(resolve, 20))
      }
    } while (found.length === 0 && Date.now() < end)
    return found
  }

  async fetch(partition) {
    const leaders = this.cluster.findLeaderForPartitions(this.topic, [partition])
    const broker = await this.cluster.findBroker({ nodeId: Object.keys(leaders)[0] })
    const fetchOffset = this.places.get(partition)
    const maxBytes = this.fetchBytes ?? 1 << 20
    const { responses } = await broker.fetch({
      isolationLevel: this.isolationLevel,
      maxWaitTime: this.waitMs,
      minBytes: 1,
      maxBytes: this.fetchBytes ?? 10 << 20,
      topics: [{ topic: this.topic, partitions: [{ partition, fetchOffset, maxBytes }] }],
    })
    const fetched = responses[0]?.partitions[0]
    if (fetched === undefined) return []
    const batch = new Batch(this.topic, String(fetchOffset), fetched) // without aborted records
    for (const { offset } of batch.messagesWithinOffset) {
      this.places.set(partition, Number(offset) + 1)
    }
    return batch.messages.map(message => ({
      partition,
      offset: Number(message.offset),
      timestamp_ms: Number(message.timestamp),
      key: text(message.key),
      value: text(message.value),
      headers: pairsOf(message.headers),
    }))
  }

  close() {
    return this.cluster.disconnect()
  }
}

const COMMANDS = {
  async begin({ bootstrap, security }) {
    kafka = new Kafka({
      clientId: 'conformance',
      brokers: bootstrap.split(','),
      logLevel: logLevel.NOTHING,
      retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 20 },
      ...security,
    })
    return require('kafkajs/package.json').version
  },
  async 'writer.open'(options) {
    const writer = new Writer(options)
    await writer.producer.connect()
    return keep(writer)
  },
  'writer.send': ({ number, ...rest }) => open.get(number).send(rest),
  async 'transactional.open'(options) {
    const writer = new TransactionalWriter(options)
    await writer.producer.connect()
    return keep(writer)
  },
  'transactional.begin': ({ number }) => open.get(number).begin(),
  'transactional.send_offsets': ({ number, ...rest }) => open.get(number).sendOffsets(rest),
  'transactional.commit': ({ number }) => open.get(number).commit(),
  'transactional.abort': ({ number }) => open.get(number).abort(),
  async 'reader.open'({ topic, starts, fetch_bytes: fetchBytes, wait_ms: waitMs, is_committed }) {
    const reader = new Reader(topic, fetchBytes, waitMs, is_committed ? 1 : 0)
    const number = keep(reader)
    await reader.start(starts)
    return number
  },
  'reader.seek': ({ number, partition, to }) => open.get(number).seek(partition, to),
  'reader.pause': ({ number, partition }) => void open.get(number).paused.add(partition),
  'reader.resume': ({ number, partition }) => void open.get(number).paused.delete(partition),
  'reader.poll': ({ number, within_ms: withinMs }) => open.get(number).poll(withinMs),
  async 'member.open'({ group, topic, heartbeat_ms: heartbeatMs }) {
    const member = new Member(group, topic, heartbeatMs)
    const number = keep(member)
    await member.start()
    return number
  },
  'member.poll': ({ number, within_ms: withinMs }) => open.get(number).poll(withinMs),
  'member.owned': ({ number }) => open.get(number).owned,
  'member.commit': ({ number }) => open.get(number).commit(),
  async offset({ topic, partition, at }) {
    const reader = new Reader(topic, null, 0, 0)
    try {
      await reader.start({})
      return await reader.offset(partition, at in TIMES ? TIMES[at] : String(at))
    } finally {
      await reader.close()
    }
  },
  async 'admin.open'() {
    const admin = kafka.admin({ retry: { retries: 3 } })
    await admin.connect()
    return keep({ admin, close: () => admin.disconnect() })
  },
  async 'admin.create'({ number, topic, validate_only: validateOnly }) {
    const replicas = topic.assignments.map((each, partition) => ({ partition, replicas: each }))
    const made = await open.get(number).admin.createTopics({
      validateOnly,
      waitForLeaders: !validateOnly,
      topics: [
        {
          topic: topic.name,
          ...(replicas.length
            ? { replicaAssignment: replicas, numPartitions: -1, replicationFactor: -1 }
            : { numPartitions: topic.partitions, replicationFactor: topic.replication }),
          configEntries: Object.entries(topic.configs).map(([name, value]) => ({ name, value })),
        },
      ],
    })
    if (!made) throw Object.assign(new Error('the topic exists'), { code: 36 })
  },
  'admin.delete': ({ number, topic }) => open.get(number).admin.deleteTopics({ topics: [topic] }),
  'admin.topics': ({ number }) => open.get(number).admin.listTopics(),
  async 'admin.describe'({ number, topic }) {
    const told = await open.get(number).admin.fetchTopicMetadata({ topics: [topic] })
    return told.topics[0].partitions.map(each => ({
      partition: each.partitionId,
      leader: each.leader,
      replicas: each.replicas,
      isr: each.isr,
    }))
  },
  async 'admin.brokers'({ number }) {
    const told = await open.get(number).admin.describeCluster()
    return {
      cluster_id: told.clusterId,
      controller: told.controller,
      addresses: told.brokers.map(each => [each.nodeId, `${each.host}:${each.port}`]),
    }
  },
  'admin.grow': ({ number, topic, partitions }) =>
    open
      .get(number)
      .admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] })
      .then(() => null),
  async 'admin.delete_records'({ number, topic, before }) {
    const { admin } = open.get(number)
    await admin.fetchTopicOffsets(topic) // so that its metadata has the topic
    const partitions = before.map(([partition, offset]) => ({ partition, offset: String(offset) }))
    await admin.deleteTopicRecords({ topic, partitions })
  },
  async 'admin.configs'({ number, topic }) {
    const resources = [{ type: TOPIC, name: topic }]
    const told = await open.get(number).admin.describeConfigs({ resources })
    return told.resources[0].configEntries.map(each => [each.configName, each.configValue])
  },
  async 'admin.alter_configs'({ number, topic, values }) {
    const configEntries = Object.entries(values).map(([name, value]) => ({ name, value }))
    const resources = [{ type: TOPIC, name: topic, configEntries }]
    await open.get(number).admin.alterConfigs({ resources })
  },
  async 'admin.reassign'({ number, topic, partition, replicas }) {
    const partitionAssignment = [{ partition, replicas }]
    await open.get(number).admin.alterPartitionReassignments({
      topics: [{ topic, partitionAssignment }],
    })
  },
  async close({ number }) {
    const thing = open.get(number)
    open.delete(number)
    await thing.close()
  },
}

// The error of a broker is nested in errors of retries and of several requests.
function brokersError(error) {
  for (let one = error; one; one = one.cause ?? one.errors?.[0] ?? one.partitions?.[0]?.error) {
    if (typeof one.code === 'number') return one
  }
  return error
}

async function answer(line) {
  const { command, ...rest } = JSON.parse(line)
  try {
    return { result: (await COMMANDS[command](rest)) ?? null }
  } catch (error) {
    const { code, message } = brokersError(error)
    return { code: typeof code === 'number' ? code : -1, text: `${error.name}: ${message}` }
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(line)) + '\n')
  }
  process.exit(0)
}

main()
