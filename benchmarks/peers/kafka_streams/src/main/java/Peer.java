import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.Comparator;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.TimestampExtractor;

/** Nexmark queries in the Kafka Streams DSL: RocksDB stores, changelogs, updates emitted (no suppression). */
public final class Peer {
  static final ObjectMapper JSON =
      new ObjectMapper().disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);

  interface Timed {
    long time();
  }

  public record Bid(
      long auction, long bidder, long price, String channel, String url, long dateTime, String extra)
      implements Timed {
    public long time() { return dateTime; }
  }

  public record Person(long id, String name, String city, String state, long dateTime) implements Timed {
    public long time() { return dateTime; }
  }

  public record Auction(long id, long seller, long category, long dateTime) implements Timed {
    public long time() { return dateTime; }
  }

  public record Converted(long auction, long bidder, double price, long dateTime, String extra) {}
  public record Picked(long auction, long price) {}
  public record Offer(String name, String city, String state, long id) {}
  public record Hot(long window_start, long auction, long num) {}
  public record High(long window_start, long auction, long bidder, long price) {}
  public record Newcomer(long id, String name, long window_start) {}
  public record Session(long bidder, long bid_count, long starttime, long endtime) {}
  public record Totals(long bidder, long bids, long total, long top) {}

  // Of several equal ones the one with the highest ids, so that all systems give the same.
  static final Comparator<Hot> BUSIEST = Comparator.comparingLong(Hot::num).thenComparingLong(Hot::auction);

  static final Comparator<Bid> BEST_BID =
      Comparator.comparingLong(Bid::price).thenComparingLong(Bid::auction).thenComparingLong(Bid::bidder);
  static final Comparator<High> HIGHEST =
      Comparator.comparingLong(High::price).thenComparingLong(High::auction).thenComparingLong(High::bidder);

  static <T> Reducer<T> greatest(Comparator<T> order) {
    return (x, y) -> order.compare(x, y) < 0 ? y : x;
  }

  static <T> Serde<T> json(Class<T> type) {
    Serializer<T> out = (topic, v) -> {
      try {
        return v == null ? null : JSON.writeValueAsBytes(v);
      } catch (Exception e) {
        throw new RuntimeException(e);
      }
    };
    Deserializer<T> in = (topic, b) -> {
      try {
        return b == null ? null : JSON.readValue(b, type);
      } catch (Exception e) {
        throw new RuntimeException(e);
      }
    };
    return Serdes.serdeFrom(out, in);
  }

  /** Event time of the source records; records of internal topics carry it already. */
  public static final class EventTime implements TimestampExtractor {
    @Override
    public long extract(ConsumerRecord<Object, Object> record, long partitionTime) {
      return record.value() instanceof Timed t ? t.time() : record.timestamp();
    }
  }

  static final Serde<String> KEY = Serdes.String();
  static final Duration TEN = Duration.ofSeconds(10);
  static final Duration GRACE = Duration.ofHours(1); // a backlog is read with skew between partitions

  static <T extends Timed> Consumed<String, T> source(Class<T> type) {
    return Consumed.with(KEY, json(type)).withTimestampExtractor(new EventTime());
  }

  static void build(StreamsBuilder b, String query, String prefix, String output) {
    String bid = prefix + "bid", person = prefix + "person", auction = prefix + "auction";
    switch (query) {
      case "q0" ->
          b.stream(bid, source(Bid.class)).to(output, Produced.with(KEY, json(Bid.class)));
      case "q1" ->
          b.stream(bid, source(Bid.class))
              .mapValues(v -> new Converted(v.auction, v.bidder, 0.908 * v.price, v.dateTime, v.extra))
              .to(output, Produced.with(KEY, json(Converted.class)));
      case "q2" ->
          b.stream(bid, source(Bid.class))
              .filter((k, v) -> v.auction % 123 == 0)
              .mapValues(v -> new Picked(v.auction, v.price))
              .to(output, Produced.with(KEY, json(Picked.class)));
      case "q3" -> {
        KTable<String, Person> people =
            b.table(person, source(Person.class))
                .filter((k, p) -> p.state.equals("OR") || p.state.equals("ID") || p.state.equals("CA"));
        b.table(auction, source(Auction.class))
            .filter((k, a) -> a.category == 10)
            .join(people, a -> Long.toString(a.seller),
                (a, p) -> new Offer(p.name, p.city, p.state, a.id),
                Materialized.with(KEY, json(Offer.class)))
            .toStream()
            .to(output, Produced.with(KEY, json(Offer.class)));
      }
      case "q5" ->
          b.stream(bid, source(Bid.class))
              .groupByKey(Grouped.with(KEY, json(Bid.class)))
              .windowedBy(TimeWindows.ofSizeAndGrace(TEN, GRACE).advanceBy(Duration.ofSeconds(2)))
              .count()
              .toStream()
              .map((w, n) -> {
                long start = w.window().start();
                return KeyValue.pair(Long.toString(start), new Hot(start, Long.parseLong(w.key()), n));
              })
              .groupByKey(Grouped.with(KEY, json(Hot.class)))
              .reduce(greatest(BUSIEST))
              .toStream()
              .to(output, Produced.with(KEY, json(Hot.class)));
      case "q7" ->
          b.stream(bid, source(Bid.class))
              .groupByKey(Grouped.with(KEY, json(Bid.class)))
              .windowedBy(TimeWindows.ofSizeAndGrace(TEN, GRACE))
              .reduce(greatest(BEST_BID))
              .toStream()
              .map((w, v) -> {
                long start = w.window().start();
                return KeyValue.pair(Long.toString(start), new High(start, v.auction, v.bidder, v.price));
              })
              .groupByKey(Grouped.with(KEY, json(High.class)))
              .reduce(greatest(HIGHEST))
              .toStream()
              .to(output, Produced.with(KEY, json(High.class)));
      case "q8" -> {
        TimeWindows ten = TimeWindows.ofSizeAndGrace(TEN, GRACE);
        KTable<Windowed<String>, Person> people =
            b.stream(person, source(Person.class))
                .groupByKey(Grouped.with(KEY, json(Person.class)))
                .windowedBy(ten)
                .reduce((x, y) -> x);
        KTable<Windowed<String>, Long> sellers =
            b.stream(auction, source(Auction.class))
                .groupBy((k, a) -> Long.toString(a.seller), Grouped.with(KEY, json(Auction.class)))
                .windowedBy(ten)
                .count();
        people
            .join(sellers, (p, n) -> p)
            .toStream()
            .map((w, p) -> KeyValue.pair(
                w.key() + "@" + w.window().start(), new Newcomer(p.id, p.name, w.window().start())))
            .to(output, Produced.with(KEY, json(Newcomer.class)));
      }
      case "q11" ->
          b.stream(bid, source(Bid.class))
              .groupBy((k, v) -> Long.toString(v.bidder), Grouped.with(KEY, json(Bid.class)))
              .windowedBy(SessionWindows.ofInactivityGapAndGrace(TEN, GRACE))
              .count()
              .toStream()
              .map((w, n) -> {
                long from = w.window().start(), to = w.window().end();
                return KeyValue.pair(
                    w.key() + "@" + from + "-" + to,
                    n == null ? null : new Session(Long.parseLong(w.key()), n, from, to + 10_000));
              })
              .to(output, Produced.with(KEY, json(Session.class)));
      case "qc" ->
          b.stream(bid, source(Bid.class))
              .groupBy((k, v) -> Long.toString(v.bidder), Grouped.with(KEY, json(Bid.class)))
              .aggregate(
                  () -> new Totals(0, 0, 0, 0),
                  (k, v, t) -> new Totals(v.bidder, t.bids + 1, t.total + v.price, Math.max(t.top, v.price)),
                  Materialized.with(KEY, json(Totals.class)))
              .toStream()
              .to(output, Produced.with(KEY, json(Totals.class)));
      default -> throw new IllegalArgumentException(query);
    }
  }

  public static void main(String[] args) throws Exception {
    var env = System.getenv();
    var builder = new StreamsBuilder();
    build(builder, env.get("PEER_QUERY"), env.get("PEER_PREFIX"), env.get("PEER_OUTPUT"));
    var p = new Properties();
    p.put(StreamsConfig.APPLICATION_ID_CONFIG, env.get("PEER_APP_ID"));
    p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, env.get("PEER_BOOTSTRAP"));
    p.put(StreamsConfig.STATE_DIR_CONFIG, env.get("PEER_WORKDIR"));
    p.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, env.get("PEER_THREADS"));
    p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, env.get("PEER_GUARANTEE"));
    p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, env.get("PEER_COMMIT_MS"));
    p.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 64L << 20);
    p.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE);
    p.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
    p.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");
    p.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), "50");
    p.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), "131072");
    var topology = builder.build(p);
    System.err.println(topology.describe());
    var streams = new KafkaStreams(topology, p);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
    streams.start();
    Thread.currentThread().join();
  }
}
