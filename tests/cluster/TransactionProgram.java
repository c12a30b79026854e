// The read-process-write program of transaction_program.py with Kafka's own client, in transactions
// of version 2: java -cp JARS TransactionProgram.java BOOTSTRAP NAME PARTITIONS

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class TransactionProgram {
  static final int ABORT_EACH = 10;
  static final int FATAL = 3; // exit code

  static volatile boolean isOver;
  static int transactions;
  static KafkaProducer<byte[], byte[]> producer;
  static KafkaConsumer<byte[], byte[]> consumer;
  static List<TopicPartition> places = new ArrayList<>();

  public static void main(String[] arguments) {
    Thread loop = Thread.currentThread();
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  isOver = true; // ends after the current transaction
                  try {
                    loop.join();
                  } catch (InterruptedException error) {
                    Runtime.getRuntime().halt(1);
                  }
                  Runtime.getRuntime().halt(0);
                }));
    try {
      run(arguments[0], arguments[1], Integer.parseInt(arguments[2]));
    } catch (KafkaException error) {
      System.err.println(arguments[1] + ": " + error);
      if (!isOver) {
        Runtime.getRuntime().halt(FATAL);
      }
    }
  }

  static void run(String bootstrap, String name, int partitions) {
    Map<String, Object> common = new HashMap<>();
    common.put("bootstrap.servers", bootstrap);
    common.put("metadata.max.age.ms", 1_000);
    Map<String, Object> producing = new HashMap<>(common);
    producing.put("transactional.id", name);
    producing.put("transaction.timeout.ms", 10_000);
    producing.put("max.block.ms", 15_000L);
    producing.put("key.serializer", ByteArraySerializer.class);
    producing.put("value.serializer", ByteArraySerializer.class);
    Map<String, Object> consuming = new HashMap<>(common);
    consuming.put("group.id", name);
    consuming.put("enable.auto.commit", false);
    consuming.put("isolation.level", "read_committed");
    consuming.put("auto.offset.reset", "earliest");
    consuming.put("max.poll.records", 100);
    consuming.put("default.api.timeout.ms", 15_000);
    consuming.put("key.deserializer", ByteArrayDeserializer.class);
    consuming.put("value.deserializer", ByteArrayDeserializer.class);
    for (int index = 0; index < partitions; index++) {
      places.add(new TopicPartition("source", index));
    }
    producer = new KafkaProducer<>(producing);
    consumer = new KafkaConsumer<>(consuming);
    retry(producer::initTransactions);
    consumer.assign(places);
    position();
    while (!isOver) {
      ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
      if (!records.isEmpty()) {
        process(records, "result-" + name);
      }
    }
    consumer.close();
    producer.close();
  }

  /** Read from the committed offsets on. */
  static void position() {
    retry(
        () -> {
          Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(new HashSet<>(places));
          for (TopicPartition place : places) {
            OffsetAndMetadata stored = found.get(place);
            consumer.seek(place, stored == null ? 0 : stored.offset());
          }
        });
  }

  static void process(ConsumerRecords<byte[], byte[]> records, String output) {
    transactions++;
    try {
      producer.beginTransaction();
      Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
      for (ConsumerRecord<byte[], byte[]> each : records) {
        String key = each.partition() + "/" + each.offset();
        producer.send(new ProducerRecord<>(output, key.getBytes(), each.value()));
        offsets.put(
            new TopicPartition(each.topic(), each.partition()),
            new OffsetAndMetadata(each.offset() + 1));
      }
      retry(() -> producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata()));
      if (transactions % ABORT_EACH != 0) {
        retry(producer::commitTransaction);
        return;
      }
    } catch (ProducerFencedException | TimeoutException error) {
      throw error;
    } catch (KafkaException error) {
      System.err.println("aborts: " + error);
    }
    retry(producer::abortTransaction);
    position();
  }

  /** Repeat a call that timed out, until the end. */
  static void retry(Runnable call) {
    while (true) {
      try {
        call.run();
        return;
      } catch (TimeoutException error) {
        if (isOver) {
          throw error;
        }
      }
    }
  }
}
