// Apache Kafka's Java producer, controlled line by line like rdkafka_producer.py.
// Run from source: java -cp JARS TransactionProducer.java PORT TOPIC VALUE_BYTES TRANSACTIONAL_ID

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class TransactionProducer {
  static final ObjectMapper JSON = new ObjectMapper();
  static final int DISTINCT = 1_000;
  static final int LOOK_EVERY = 64;

  final KafkaProducer<byte[], byte[]> producer;
  final String topic;
  final byte[][] values = new byte[DISTINCT][];
  final boolean isTransactional;
  final AtomicReference<Exception> failure = new AtomicReference<>();
  long written;

  TransactionProducer(String port, String topic, int size, String transactionalId) {
    this.topic = topic;
    isTransactional = !transactionalId.isEmpty();
    Random random = new Random(1);
    for (int number = 0; number < DISTINCT; number++) {
      values[number] = new byte[size];
      random.nextBytes(values[number]);
    }
    Properties settings = new Properties();
    settings.put("bootstrap.servers", "127.0.0.1:" + port);
    settings.put("key.serializer", ByteArraySerializer.class);
    settings.put("value.serializer", ByteArraySerializer.class);
    if (isTransactional) settings.put("transactional.id", transactionalId);
    producer = new KafkaProducer<>(settings);
    if (isTransactional) producer.initTransactions();
  }

  ObjectNode write(double seconds, int records, double intervalMs) throws Exception {
    long before = written;
    long began = System.nanoTime();
    long beganCpu = cpu();
    long ends = began + (long) (seconds * 1e9);
    ObjectNode answer = JSON.createObjectNode();
    ArrayNode commits = answer.putArray("commits_us");
    while (System.nanoTime() < ends) {
      if (!isTransactional) {
        send(0, ends);
        continue;
      }
      producer.beginTransaction();
      send(records, intervalMs > 0 ? System.nanoTime() + (long) (intervalMs * 1e6) : Long.MAX_VALUE);
      producer.flush();
      long commit = System.nanoTime();
      producer.commitTransaction();
      commits.add((System.nanoTime() - commit) / 1_000);
    }
    producer.flush();
    if (failure.get() != null) throw failure.get();
    answer.put("records", written - before);
    answer.put("seconds", (System.nanoTime() - began) / 1e9);
    answer.put("cpu_s", (cpu() - beganCpu) / 1e9);
    return answer;
  }

  void send(int records, long until) {
    for (int sent = 0; records == 0 || sent < records; ) {
      producer.send(
          new ProducerRecord<>(topic, values[sent % DISTINCT]),
          (metadata, error) -> {
            if (error != null) failure.compareAndSet(null, error);
          });
      sent++;
      written++;
      if (sent % LOOK_EVERY == 0 && System.nanoTime() >= until) return;
    }
  }

  static long cpu() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err); // for logs
    TransactionProducer writer =
        new TransactionProducer(
            arguments[0], arguments[1], Integer.parseInt(arguments[2]), arguments[3]);
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = requests.readLine()) != null; ) {
      JsonNode request = JSON.readTree(line);
      answers.println(
          writer.write(
              request.get("seconds").asDouble(),
              request.get("records").asInt(),
              request.get("interval_ms").asDouble()));
    }
    System.exit(0);
  }
}
