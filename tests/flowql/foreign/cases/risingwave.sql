CREATE SOURCE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, date_time TIMESTAMP, WATERMARK FOR date_time AS date_time - INTERVAL '5' SECOND) WITH (connector='kafka', topic='bid', properties.bootstrap.server='b:9092', scan.startup.mode='earliest') FORMAT PLAIN ENCODE JSON;
CREATE MATERIALIZED VIEW per_minute AS SELECT window_start, COUNT(*) AS n FROM TUMBLE(bid, date_time, INTERVAL '1 minute') GROUP BY window_start EMIT ON WINDOW CLOSE;
CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR, meta JSONB);
CREATE TABLE log (id INT, name VARCHAR) APPEND ONLY;
CREATE MATERIALIZED VIEW mv AS SELECT name, count(*) AS c, max(meta->>'a') AS m FROM t WHERE name ~ 'a' GROUP BY name;
CREATE SINK k FROM mv WITH (connector='kafka', topic='out', properties.bootstrap.server='x', primary_key='name') FORMAT UPSERT ENCODE JSON;
SELECT auction, date_trunc('hour', date_time), to_char(date_time, 'YYYY') FROM bid LIMIT 3;
CREATE MATERIALIZED VIEW hop AS SELECT auction, window_end, sum(price) AS s FROM HOP(bid, date_time, INTERVAL '1 minute', INTERVAL '5 minutes') GROUP BY auction, window_end;
INSERT INTO t VALUES (1, 'a', '{"a": 1}')
