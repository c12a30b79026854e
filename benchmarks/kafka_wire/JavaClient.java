// Apache Kafka's Java client with the arguments of rdkafka_client.py:
// java -cp JARS JavaClient.java produce|consume PORT TOPIC PARTITIONS VALUE_BYTES RECORDS HELD CODEC
// It prints one JSON line. The clocks begin after an eighth as many records, when the virtual
// machine has compiled the code of the client.

import java.io.IOException;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class JavaClient {
  static final int DISTINCT = 1_000;
  static final int WARM_SHARE = 8;
  static final int WAIT_MS = 20; // of a fetch at the end of the topic, which delays the next pass
  static final Duration POLL = Duration.ofSeconds(30);

  static long began, beganCpu;
  static Map<String, Long> beganThreads;

  static void begin() throws IOException {
    beganThreads = threads();
    beganCpu = cpu();
    began = System.nanoTime();
  }

  /** The consumer or producer moved `moved` records, `records` of them since `begin`. */
  static void end(PrintStream out, long records, long moved) throws IOException {
    double seconds = (System.nanoTime() - began) / 1e9;
    double spent = (cpu() - beganCpu) / 1e9;
    long busiest = 0;
    for (Map.Entry<String, Long> each : threads().entrySet())
      busiest = Math.max(busiest, each.getValue() - beganThreads.getOrDefault(each.getKey(), 0L));
    out.printf(
        "{\"seconds\": %.6f, \"cpu_s\": %.6f, \"thread_cpu_s\": %.6f, "
            + "\"records\": %d, \"moved\": %d}%n",
        seconds, spent, busiest / 1e9, records, moved);
  }

  static long cpu() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  /** Nanoseconds on a processor by thread. */
  static Map<String, Long> threads() throws IOException {
    Map<String, Long> spent = new HashMap<>();
    try (DirectoryStream<Path> tasks = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
      for (Path task : tasks) {
        try {
          String text = Files.readString(task.resolve("schedstat"));
          spent.put(task.getFileName().toString(), Long.parseLong(text.split(" ")[0]));
        } catch (NoSuchFileException ended) {
          continue;
        }
      }
    }
    return spent;
  }

  static void produce(PrintStream out, Properties settings, String topic, int size, long records)
      throws Exception {
    settings.put("acks", "1");
    settings.put("key.serializer", ByteArraySerializer.class);
    settings.put("value.serializer", ByteArraySerializer.class);
    Random random = new Random(1);
    byte[][] values = new byte[DISTINCT][];
    for (int number = 0; number < DISTINCT; number++) {
      byte[] noise = new byte[size / 2];
      random.nextBytes(noise);
      values[number] = Arrays.copyOf(noise, size);
    }
    AtomicReference<Exception> failure = new AtomicReference<>();
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
      for (long number = -records / WARM_SHARE; number < records; number++) {
        if (number == 0) {
          producer.flush();
          begin();
        }
        byte[] value = values[(int) Math.floorMod(number, DISTINCT)];
        producer.send(
            new ProducerRecord<>(topic, value),
            (metadata, error) -> {
              if (error != null) failure.compareAndSet(null, error);
            });
      }
      producer.flush();
      end(out, records, records + records / WARM_SHARE);
    }
    if (failure.get() != null) throw failure.get();
  }

  static void consume(
      PrintStream out, Properties settings, String topic, int partitions, long records, long held)
      throws Exception {
    settings.put("fetch.max.wait.ms", WAIT_MS);
    settings.put("key.deserializer", ByteArrayDeserializer.class);
    settings.put("value.deserializer", ByteArrayDeserializer.class);
    List<TopicPartition> all =
        IntStream.range(0, partitions).mapToObj(each -> new TopicPartition(topic, each)).toList();
    try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
      consumer.assign(all);
      consumer.seekToBeginning(all);
      long seen = -records / WARM_SHARE, pass = 0, first = 0;
      boolean isWarm = true;
      while (seen < records) {
        ConsumerRecords<byte[], byte[]> some = consumer.poll(POLL);
        if (some.isEmpty()) throw new IllegalStateException(seen + " of " + records + " came");
        seen += some.count();
        pass += some.count();
        if (isWarm && seen >= 0) {
          isWarm = false;
          first = seen;
          begin();
        }
        if (pass >= held) {
          consumer.seekToBeginning(all);
          pass = 0;
        }
      }
      end(out, seen - first, seen + records / WARM_SHARE);
    }
  }

  public static void main(String[] words) throws Exception {
    PrintStream out = System.out;
    System.setOut(System.err); // for logs
    Properties settings = new Properties();
    settings.put("bootstrap.servers", "127.0.0.1:" + words[1]);
    int partitions = Integer.parseInt(words[3]), size = Integer.parseInt(words[4]);
    long records = Long.parseLong(words[5]), held = Long.parseLong(words[6]);
    if (words[0].equals("produce")) {
      settings.put("compression.type", words[7]);
      produce(out, settings, words[2], size, records);
    } else {
      consume(out, settings, words[2], partitions, records, held);
    }
    System.exit(0);
  }
}
