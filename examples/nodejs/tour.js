// All calls of the client, against a broker: `quorumlog dev` in another terminal, then
//
//     npm ci && node tour.js [127.0.0.1:9094]
'use strict';

const assert = require('node:assert/strict');
const { Client } = require('./client');

async function main(address) {
  const log = new Client(address);
  const topic = `tour-${Date.now()}`;
  console.log('health:', await log.health());

  await log.createTopic(topic, { partitions: 3, configs: { 'retention.ms': '3600000' } });
  console.log('partitions:', (await log.describeTopic(topic)).partitions.length);

  // Records by key: the same key always goes to the same partition.
  const places = await log.publish(
    topic,
    [
      { key: 'UA', value: 'EWR to IAH', headers: { source: 'tower' } },
      { key: 'AA', value: 'JFK to MIA' },
      { key: 'UA', value: 'EWR to DEN', timestamp_ms: Date.UTC(2013, 0, 1) },
    ],
    { compression: 'ZSTD' },
  );
  assert.equal(places[0].partition, places[2].partition);
  assert.equal(places[2].offset, places[0].offset + 1);

  // Read them, up to the end that the broker returns.
  const { partition } = places[0];
  const end = await log.offset(topic, partition, 'latest');
  for await (const record of log.subscribe(topic, { partition, end })) {
    console.log(`${record.offset}: ${record.key} ${record.value}`);
  }
  assert.equal(await log.offset(topic, partition, new Date(Date.UTC(2100, 0))), -1);

  // Wait for new records, and cancel once they have arrived.
  const stop = new AbortController();
  const seen = [];
  const following = (async () => {
    for await (const record of log.subscribe(topic, { partition, from: end, signal: stop.signal })) {
      seen.push(String(record.value));
      stop.abort();
    }
  })().catch((error) => console.log('subscription:', error.name));
  await log.publish(topic, [{ value: 'LGA to ATL' }], { partition });
  await following;
  console.log('seen:', seen.join());

  // Leaving the loop cancels too, and so does a signal that was aborted before.
  for await (const record of log.subscribe(topic, { partition, signal: AbortSignal.timeout(30_000) })) {
    console.log('first:', String(record.value));
    break;
  }
  await assert.rejects(log.subscribe(topic, { partition, signal: AbortSignal.abort() }).next(), {
    name: 'CANCELLED',
  });

  // A deadline ends a call without an end.
  try {
    for await (const _ of log.subscribe(topic, { partition, from: 'latest', timeoutMs: 200 })) {
      assert.fail('nothing is published');
    }
  } catch (error) {
    console.log('deadline:', error.name);
  }

  // Errors by type.
  for (const attempt of [
    () => log.publish('no-such-topic', [{ value: 'lost' }]),
    () => log.publish(topic, []),
    () => log.publish(topic, [{ value: 42 }]), // neither a text nor bytes
    () => log.publish(topic, [{ value: Buffer.alloc(2 << 20) }], { partition }),
    () => log.offset(topic, 99, 'latest'),
    () => log.createTopic(topic),
    () => log.health('quorumlog.v1.Nothing'),
  ]) {
    await assert.rejects(attempt, (error) => {
      console.log(`${error.status} ${error.name} ${error.code ?? ''} retriable: ${error.retriable}`);
      return true;
    });
  }

  // The deletion of a topic ends its subscriptions with a typed error.
  const orphan = (async () => {
    for await (const _ of log.subscribe(topic, { partition, from: 'latest' })) {
      assert.fail('nothing is published');
    }
  })().catch((error) => console.log('deleted:', error.name));
  await log.offset(topic, partition, 'latest');
  await log.deleteTopic(topic);
  await orphan;
  log.close();
}

main(process.argv[2] ?? '127.0.0.1:9094').catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
