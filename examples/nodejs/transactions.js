// A read-process-write loop whose results count exactly once, against a broker: `quorumlog dev` in
// another terminal, then
//
//     npm ci && node transactions.js [127.0.0.1:9094]
//
// Each turn is one transaction: the results and the group's offset commit together. Stop it at any
// time; the next run ends the open transaction and continues at the committed offset.
'use strict';

const assert = require('node:assert/strict');
const { Client } = require('./client');

const TURN = 3; // records of one transaction

/** Process the available records from the committed offset; return the number of transactions. */
async function work(log, source, target, { group, transactionalId, failAt }) {
  const producer = await log.transactionalProducer(transactionalId);
  const end = await log.offset(source, 0, 'latest');
  let from = Math.max(0, await log.committedOffset(group, source, 0));
  let turns = 0;
  while (from < end) {
    try {
      let taken = 0;
      let next = end; // the last offsets may be those of markers, which no reader gets
      for await (const record of log.subscribe(source, { from, end })) {
        await producer.publish(target, 0, [{ value: String(record.value).toUpperCase() }]);
        if (++taken === TURN) {
          next = record.offset + 1;
          break;
        }
      }
      await producer.sendOffsets(group, [{ topic: source, partition: 0, offset: next }]);
      if (++turns === failAt) {
        return turns; // like a crash: results and offsets are sent but not committed
      }
      await producer.commit();
      from = next;
    } catch (error) {
      await producer.abort(); // throws if another producer has the transactional id
      console.log('aborted:', error.name);
    }
  }
  return turns;
}

async function main(address) {
  const log = new Client(address);
  const [source, target] = ['in', 'out'].map((name) => `${name}-${Date.now()}`);
  await log.createTopic(source);
  await log.createTopic(target);
  await log.publish(source, 'abcdefgh'.split('').map((value) => ({ value })), { partition: 0 });

  const names = { group: `upper-${source}`, transactionalId: `upper-${source}` };
  console.log('transactions before the crash:', await work(log, source, target, { ...names, failAt: 2 }));
  console.log('transactions after it:', await work(log, source, target, names));

  // Readers of committed records get each result once.
  const results = [];
  while (results.length < 8) {
    results.length = 0; // the last marker may not be written yet
    const end = await log.offset(target, 0, 'latest');
    for await (const record of log.subscribe(target, { end })) {
      results.push(String(record.value));
    }
  }
  console.log('committed:', results.join(''));

  // Other readers get the aborted ones too.
  let all = '';
  const end = await log.offset(target, 0, 'latest', { committed: false });
  for await (const record of log.subscribe(target, { end, committed: false })) {
    all += record.value;
  }
  console.log('stored:', all);

  // A newer producer of the same id fences the older one.
  const zombie = await log.transactionalProducer(names.transactionalId);
  await zombie.publish(target, 0, [{ value: 'zombie' }]);
  await log.transactionalProducer(names.transactionalId);
  await assert.rejects(zombie.commit(), (error) => {
    console.log('fenced:', error.name, 'retriable:', error.retriable);
    return true;
  });
  log.close();
}

module.exports = { work };

if (require.main === module) {
  main(process.argv[2] ?? '127.0.0.1:9094').catch((error) => {
    console.error(error);
    process.exitCode = 1;
  });
}
