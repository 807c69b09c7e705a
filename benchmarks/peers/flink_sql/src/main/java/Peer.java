import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/** Runs sources.sql and the file of one query in a local mini-cluster, in streaming mode up to the present end offsets. */
public final class Peer {
  static final String KAFKA = "'properties.bootstrap.servers' = '%s'";
  static final String SOURCE = "'connector' = 'kafka', " + KAFKA + ", 'properties.group.id' = '%s', 'format' = 'json', "
      + "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'";
  static final String SINK = KAFKA + ", 'topic' = '%s', 'properties.compression.type' = 'lz4', "
      + "'properties.linger.ms' = '50', 'properties.batch.size' = '131072'";
  static final Map<String, String> TABLE_OPTIONS = Map.of(
      "table.local-time-zone", "UTC",
      "table.exec.mini-batch.enabled", "true",
      "table.exec.mini-batch.allow-latency", "1 s",
      "table.exec.mini-batch.size", "20000",
      "table.exec.source.idle-timeout", "5 s");

  static Configuration configuration(Map<String, String> env) {
    String work = env.get("PEER_WORKDIR");
    return Configuration.fromMap(Map.ofEntries(
        Map.entry("parallelism.default", env.get("PEER_THREADS")),
        Map.entry("state.backend.type", env.get("PEER_STATE")),
        Map.entry("state.backend.rocksdb.localdir", work + "/rocksdb"),
        Map.entry("execution.checkpointing.interval", env.get("PEER_COMMIT_MS") + " ms"),
        Map.entry("execution.checkpointing.mode", "AT_LEAST_ONCE"),
        Map.entry("execution.checkpointing.storage", "filesystem"),
        Map.entry("execution.checkpointing.dir", "file://" + work + "/checkpoints"),
        Map.entry("execution.checkpointing.incremental", "true"),
        Map.entry("taskmanager.memory.managed.size", "256m"),
        Map.entry("taskmanager.memory.network.min", "64m"),
        Map.entry("taskmanager.memory.network.max", "64m"),
        Map.entry("pipeline.object-reuse", "true")));
  }

  public static void main(String[] args) throws Exception {
    var env = System.getenv();
    var flink = StreamExecutionEnvironment.getExecutionEnvironment(configuration(env));
    var tables = StreamTableEnvironment.create(flink);
    TABLE_OPTIONS.forEach(tables.getConfig()::set);
    String kafka = env.get("PEER_BOOTSTRAP");
    for (String name : new String[] {"sources", env.get("PEER_QUERY")}) {
      String sql = Files.readString(Path.of(args[0], name + ".sql"))
          .replace("${PREFIX}", env.get("PEER_PREFIX"))
          .replace("${SOURCE}", SOURCE.formatted(kafka, env.get("PEER_APP_ID")))
          .replace("${SINK}", SINK.formatted(kafka, env.get("PEER_OUTPUT")));
      for (String statement : sql.split(";\\s*\n")) {
        var result = tables.executeSql(statement);
        if (statement.stripLeading().startsWith("INSERT")) {
          result.await();
        }
      }
    }
    System.exit(0);
  }
}
