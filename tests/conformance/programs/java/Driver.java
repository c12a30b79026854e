// Executes the commands of tests/conformance with Kafka's Java client: a line of JSON in, a line of
// JSON out, in order. Bytes are encoded as base64. Run from source: java -cp JARS Driver.java

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.Closeable;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

public class Driver {
  static final ObjectMapper JSON = new ObjectMapper();
  static final long WITHIN_MS = 30_000;
  static final Map<Integer, Closeable> OPEN = new HashMap<>();
  static String bootstrap;
  static Map<String, Object> security = Map.of();
  static int lastNumber;

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err); // for logs
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = lines.readLine()) != null; ) {
      answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
      answers.flush();
    }
    System.exit(0);
  }

  static ObjectNode answer(JsonNode asked) {
    ObjectNode answer = JSON.createObjectNode();
    try {
      answer.set("result", JSON.valueToTree(result(asked)));
    } catch (Throwable error) {
      while (error instanceof ExecutionException && error.getCause() != null) {
        error = error.getCause();
      }
      boolean isRange = error instanceof OffsetOutOfRangeException;
      answer.put("code", (isRange ? Errors.OFFSET_OUT_OF_RANGE : Errors.forException(error)).code());
      answer.put("text", error.toString());
    }
    return answer;
  }

  static Object result(JsonNode asked) throws Exception {
    String command = asked.get("command").asText();
    int number = asked.path("number").asInt();
    switch (command) {
      case "begin":
        bootstrap = asked.get("bootstrap").asText();
        security = JSON.convertValue(asked.get("security"), new TypeReference<>() {});
        return AppInfoParser.getVersion();
      case "writer.open":
        return keep(new Writer(asked));
      case "writer.send":
        return ((Writer) OPEN.get(number)).send(asked);
      case "transactional.open":
        return keep(new TransactionalWriter(asked));
      case "reader.open":
        return keep(new Reader(asked));
      case "member.open":
        return keep(new Member(asked));
      case "offset":
        try (Reader reader = new Reader(asked.get("topic").asText(), null, 0, false)) {
          return reader.offset(asked.get("partition").asInt(), asked.get("at"));
        }
      case "admin.open":
        return keep(new Administration());
      case "close":
        OPEN.remove(number).close();
        return null;
      default:
        if (command.startsWith("transactional.")) {
          return ((TransactionalWriter) OPEN.get(number)).act(command.substring(14), asked);
        }
        if (command.startsWith("reader.")) {
          return ((Reader) OPEN.get(number)).act(command.substring(7), asked);
        }
        if (command.startsWith("member.")) {
          return ((Member) OPEN.get(number)).act(command.substring(7), asked);
        }
        return ((Administration) OPEN.get(number)).act(command.substring(6), asked);
    }
  }

  static int keep(Closeable thing) {
    OPEN.put(++lastNumber, thing);
    return lastNumber;
  }

  static byte[] bytes(JsonNode text) {
    return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
  }

  static String text(byte[] content) {
    return content == null ? null : Base64.getEncoder().encodeToString(content);
  }

  static Map<String, Object> settings() {
    Map<String, Object> settings = new HashMap<>(security);
    settings.put("bootstrap.servers", bootstrap);
    settings.put("client.id", "conformance");
    return settings;
  }

  static <T> T got(Future<T> future) throws Exception {
    return future.get(WITHIN_MS, TimeUnit.MILLISECONDS);
  }

  static List<Integer> ids(Collection<Node> nodes) {
    return nodes.stream().map(Node::id).toList();
  }

  static ArrayNode found(KafkaConsumer<byte[], byte[]> consumer, JsonNode asked) {
    ArrayNode found = JSON.createArrayNode();
    Duration within = Duration.ofMillis(asked.get("within_ms").asLong());
    for (ConsumerRecord<byte[], byte[]> one : consumer.poll(within)) {
      ObjectNode record = found.addObject();
      record.put("partition", one.partition());
      record.put("offset", one.offset());
      record.put("timestamp_ms", one.timestamp());
      record.put("key", text(one.key()));
      record.put("value", text(one.value()));
      ArrayNode headers = record.putArray("headers");
      for (Header header : one.headers()) {
        headers.addArray().add(header.key()).add(text(header.value()));
      }
    }
    return found;
  }

  static class Writer implements Closeable {
    final KafkaProducer<byte[], byte[]> producer;

    Writer(Map<String, Object> settings) {
      producer =
          new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    Writer(JsonNode asked) {
      this(settings(asked));
    }

    static Map<String, Object> settings(JsonNode asked) {
      Map<String, Object> settings = Driver.settings();
      settings.put("acks", asked.get("acks").asText());
      settings.put("compression.type", asked.get("codec").asText());
      settings.put("enable.idempotence", asked.get("idempotent").asBoolean());
      settings.put("linger.ms", asked.get("linger_ms").asInt());
      settings.put("request.timeout.ms", 10_000);
      settings.put("delivery.timeout.ms", (int) WITHIN_MS);
      settings.put("max.request.size", 8_000_000); // the broker must reject it, not the client
      return settings;
    }

    Object send(JsonNode asked) throws Exception {
      List<Future<RecordMetadata>> underWay = new ArrayList<>();
      for (JsonNode one : asked.get("records")) {
        JsonNode time = one.get("timestamp_ms");
        JsonNode partition = one.get("partition");
        var record =
            new ProducerRecord<>(
                asked.get("topic").asText(),
                partition.isNull() ? null : partition.asInt(),
                time.isNull() ? null : time.asLong(),
                bytes(one.get("key")),
                bytes(one.get("value")));
        for (JsonNode header : one.get("headers")) {
          record.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
        underWay.add(producer.send(record));
      }
      producer.flush();
      ArrayNode told = JSON.createArrayNode();
      for (Future<RecordMetadata> future : underWay) {
        RecordMetadata metadata = got(future);
        long offset = metadata.hasOffset() ? metadata.offset() : -1;
        told.addObject().put("partition", metadata.partition()).put("offset", offset);
      }
      return told;
    }

    @Override
    public void close() {
      producer.close(Duration.ofMillis(WITHIN_MS));
    }
  }

  static class TransactionalWriter extends Writer {
    TransactionalWriter(JsonNode asked) {
      super(transactional(asked));
      try {
        producer.initTransactions();
      } catch (RuntimeException error) {
        close();
        throw error;
      }
    }

    static Map<String, Object> transactional(JsonNode asked) {
      Map<String, Object> settings = Driver.settings();
      settings.put("transactional.id", asked.get("id").asText());
      settings.put("transaction.timeout.ms", asked.get("timeout_ms").asInt());
      settings.put("max.block.ms", WITHIN_MS);
      settings.put("request.timeout.ms", 10_000);
      settings.put("delivery.timeout.ms", (int) WITHIN_MS);
      return settings;
    }

    Object act(String what, JsonNode asked) {
      switch (what) {
        case "begin":
          producer.beginTransaction();
          return null;
        case "commit":
          producer.commitTransaction();
          return null;
        case "abort":
          producer.abortTransaction();
          return null;
        case "send_offsets":
          Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
          for (JsonNode pair : asked.get("offsets")) {
            var partition = new TopicPartition(asked.get("topic").asText(), pair.get(0).asInt());
            offsets.put(partition, new OffsetAndMetadata(pair.get(1).asLong()));
          }
          var member = (Member) OPEN.get(asked.get("member").asInt());
          producer.sendOffsetsToTransaction(offsets, member.consumer.groupMetadata());
          return null;
        default:
          throw new IllegalArgumentException(what);
      }
    }
  }

  static class Reader implements Closeable {
    final KafkaConsumer<byte[], byte[]> consumer;
    final String topic;

    Reader(JsonNode asked) {
      this(
          asked.get("topic").asText(),
          asked.get("fetch_bytes"),
          asked.get("wait_ms").asInt(),
          asked.get("is_committed").asBoolean());
      List<TopicPartition> wanted = new ArrayList<>();
      asked.get("starts").fieldNames().forEachRemaining(each -> wanted.add(place(each)));
      consumer.assign(wanted);
      for (TopicPartition each : wanted) {
        seek(each, asked.get("starts").get(String.valueOf(each.partition())));
      }
    }

    Reader(String topic, JsonNode fetchBytes, int waitMs, boolean isCommitted) {
      Map<String, Object> settings = settings();
      settings.put("enable.auto.commit", false);
      settings.put("auto.offset.reset", "none");
      settings.put("fetch.max.wait.ms", waitMs);
      settings.put("isolation.level", isCommitted ? "read_committed" : "read_uncommitted");
      if (fetchBytes != null && !fetchBytes.isNull()) {
        settings.put("fetch.max.bytes", fetchBytes.asInt());
        settings.put("max.partition.fetch.bytes", fetchBytes.asInt());
      }
      this.topic = topic;
      consumer =
          new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    TopicPartition place(String partition) {
      return new TopicPartition(topic, Integer.parseInt(partition));
    }

    void seek(TopicPartition partition, JsonNode to) {
      switch (to.asText()) {
        case "beginning":
          consumer.seekToBeginning(List.of(partition));
          break;
        case "end":
          consumer.seekToEnd(List.of(partition));
          consumer.position(partition); // looked up now, not by the first poll
          break;
        default:
          consumer.seek(partition, to.asLong());
      }
    }

    long offset(int number, JsonNode at) {
      TopicPartition partition = new TopicPartition(topic, number);
      switch (at.asText()) {
        case "beginning":
          return consumer.beginningOffsets(List.of(partition)).get(partition);
        case "end":
          return consumer.endOffsets(List.of(partition)).get(partition);
        default:
          var found = consumer.offsetsForTimes(Map.of(partition, at.asLong())).get(partition);
          return found == null ? -1 : found.offset();
      }
    }

    Object act(String what, JsonNode asked) {
      if (what.equals("poll")) {
        return found(consumer, asked);
      }
      TopicPartition partition = new TopicPartition(topic, asked.get("partition").asInt());
      switch (what) {
        case "seek":
          seek(partition, asked.get("to"));
          return null;
        case "pause":
          consumer.pause(List.of(partition));
          return null;
        case "resume":
          consumer.resume(List.of(partition));
          return null;
        default:
          throw new IllegalArgumentException(what);
      }
    }

    @Override
    public void close() {
      consumer.close();
    }
  }

  static class Member implements Closeable {
    final KafkaConsumer<byte[], byte[]> consumer;

    Member(JsonNode asked) {
      Map<String, Object> settings = settings();
      String protocol = asked.get("protocol").asText();
      settings.put("group.id", asked.get("group").asText());
      settings.put("group.protocol", protocol);
      if (protocol.equals("classic")) { // otherwise brokers set the interval
        settings.put("heartbeat.interval.ms", asked.get("heartbeat_ms").asInt());
      }
      settings.put("enable.auto.commit", false);
      settings.put("auto.offset.reset", "earliest");
      settings.put("fetch.max.wait.ms", 100);
      consumer =
          new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
      consumer.subscribe(List.of(asked.get("topic").asText()));
    }

    Object act(String what, JsonNode asked) {
      switch (what) {
        case "poll":
          return found(consumer, asked);
        case "owned":
          return consumer.assignment().stream().map(TopicPartition::partition).toList();
        case "commit":
          consumer.commitSync(Duration.ofMillis(WITHIN_MS));
          return null;
        default:
          throw new IllegalArgumentException(what);
      }
    }

    @Override
    public void close() {
      consumer.close();
    }
  }

  static class Administration implements Closeable {
    final Admin admin = Admin.create(settings());

    Object act(String what, JsonNode asked) throws Exception {
      JsonNode topic = asked.path("topic");
      String name = topic.asText();
      switch (what) {
        case "create":
          boolean isChecked = asked.get("validate_only").asBoolean();
          var options = new CreateTopicsOptions().validateOnly(isChecked);
          return got(admin.createTopics(List.of(newTopic(topic)), options).all());
        case "delete":
          return got(admin.deleteTopics(List.of(name)).all());
        case "topics":
          return got(admin.listTopics().names());
        case "describe":
          return describe(name);
        case "brokers":
          return brokers();
        case "grow":
          var total = NewPartitions.increaseTo(asked.get("partitions").asInt());
          return got(admin.createPartitions(Map.of(name, total)).all());
        case "delete_records":
          Map<TopicPartition, RecordsToDelete> before = new HashMap<>();
          for (JsonNode pair : asked.get("before")) {
            var partition = new TopicPartition(name, pair.get(0).asInt());
            before.put(partition, RecordsToDelete.beforeOffset(pair.get(1).asLong()));
          }
          return got(admin.deleteRecords(before).all());
        case "configs":
          return configs(name);
        case "alter_configs":
          return alterConfigs(name, asked.get("values"));
        default:
          return place(what, new TopicPartition(name, asked.get("partition").asInt()), asked);
      }
    }

    Object place(String what, TopicPartition partition, JsonNode asked) throws Exception {
      if (what.equals("reassign")) {
        List<Integer> replicas = integers(asked.get("replicas"));
        var target = Optional.of(new NewPartitionReassignment(replicas));
        return got(admin.alterPartitionReassignments(Map.of(partition, target)).all());
      }
      assert what.equals("elect_preferred") : what;
      KafkaFuture<Void> all = admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).all();
      return got(all);
    }

    NewTopic newTopic(JsonNode asked) {
      Map<Integer, List<Integer>> assignments = new HashMap<>();
      for (JsonNode replicas : asked.get("assignments")) {
        assignments.put(assignments.size(), integers(replicas));
      }
      String name = asked.get("name").asText();
      Optional<Integer> partitions = Optional.of(asked.get("partitions").asInt());
      Optional<Short> replication = Optional.of((short) asked.get("replication").asInt());
      NewTopic topic =
          assignments.isEmpty()
              ? new NewTopic(name, partitions, replication)
              : new NewTopic(name, assignments);
      Map<String, String> configs = new HashMap<>();
      asked.get("configs").properties().forEach(
          each -> configs.put(each.getKey(), each.getValue().asText()));
      return topic.configs(configs);
    }

    ArrayNode describe(String name) throws Exception {
      var found = got(admin.describeTopics(List.of(name)).allTopicNames()).get(name);
      ArrayNode partitions = JSON.createArrayNode();
      for (TopicPartitionInfo each : found.partitions()) {
        ObjectNode partition = partitions.addObject();
        partition.put("partition", each.partition());
        partition.put("leader", each.leader() == null ? -1 : each.leader().id());
        partition.set("replicas", JSON.valueToTree(ids(each.replicas())));
        partition.set("isr", JSON.valueToTree(ids(each.isr())));
      }
      return partitions;
    }

    ObjectNode brokers() throws Exception {
      var found = admin.describeCluster();
      ObjectNode told = JSON.createObjectNode();
      told.put("cluster_id", got(found.clusterId()));
      told.put("controller", got(found.controller()).id());
      ArrayNode addresses = told.putArray("addresses");
      for (Node each : got(found.nodes())) {
        addresses.addArray().add(each.id()).add(each.host() + ":" + each.port());
      }
      return told;
    }

    ArrayNode configs(String name) throws Exception {
      var resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
      ArrayNode told = JSON.createArrayNode();
      var found = got(admin.describeConfigs(List.of(resource)).all()).get(resource);
      for (ConfigEntry each : found.entries()) {
        told.addArray().add(each.name()).add(each.value());
      }
      return told;
    }

    Object alterConfigs(String name, JsonNode values) throws Exception {
      Collection<AlterConfigOp> changes = new ArrayList<>();
      values.properties().forEach(
          each ->
              changes.add(
                  new AlterConfigOp(
                      new ConfigEntry(each.getKey(), each.getValue().asText()),
                      AlterConfigOp.OpType.SET)));
      var resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
      return got(admin.incrementalAlterConfigs(Map.of(resource, changes)).all());
    }

    static List<Integer> integers(JsonNode numbers) {
      List<Integer> found = new ArrayList<>();
      numbers.forEach(each -> found.add(each.asInt()));
      return found;
    }

    @Override
    public void close() {
      admin.close(Duration.ofMillis(WITHIN_MS));
    }
  }
}
