-- In the style of RisingWave's documentation: materialized views over tables, cascades of them, time windows, temporal filters, sinks,
-- over sensors of a city.

--- tables
CREATE TABLE sensors (
    sensor_id  INT PRIMARY KEY,
    district   VARCHAR,
    kind       CHARACTER VARYING,
    installed  TIMESTAMPTZ,
    height     DOUBLE PRECISION
);
CREATE TABLE readings (
    reading_id  BIGINT PRIMARY KEY,
    sensor_id   INT,
    value       REAL,
    taken_at    TIMESTAMP
);
CREATE TABLE alarms (sensor_id INT, level SMALLINT, raised_at TIMESTAMP, message VARCHAR);
INSERT INTO sensors VALUES
    (1, 'north', 'heat', '2023-01-01 00:00:00+00:00', 2.5), (2, 'north', 'rain', '2023-06-15 12:30:00+02:00', 10),
    (3, 'south', 'heat', NULL, 1.25), (4, NULL, 'wind', '2024-01-01 00:00:00Z', NULL);
INSERT INTO readings VALUES
    (100, 1, 20.5, '2024-07-01 08:00:00'), (101, 1, 21.0, '2024-07-01 08:04:59'), (102, 2, 0, '2024-07-01 08:05:00'),
    (103, 3, 30.25, '2024-07-01 08:12:00'), (104, 2, 1.5, '2024-07-01 08:14:30'), (105, 9, NULL, '2024-07-01 08:15:00');
INSERT INTO alarms VALUES (3, 2, '2024-07-01 08:12:05', 'too hot'), (3, 1, '2024-07-01 08:13:00', 'hot'), (2, 1, '2024-07-01 08:14:31', 'wet');

--- changes
INSERT INTO readings VALUES (106, 4, 7.75, '2024-07-01 08:21:00'), (107, 1, 19.0, '2024-07-01 08:22:00');
UPDATE readings SET value = 29 WHERE reading_id = 103;
DELETE FROM readings WHERE reading_id = 101;
UPDATE sensors SET district = 'south' WHERE sensor_id = 2;
INSERT INTO alarms VALUES (1, 3, '2024-07-01 08:22:01', 'cold');
DELETE FROM alarms WHERE level = 1 AND sensor_id = 3;
FLUSH;
/* duckdb */

--- a materialized view of an average
CREATE MATERIALIZED VIEW v AS SELECT sensor_id, AVG(value) AS mean, COUNT(*) AS n FROM readings GROUP BY sensor_id;

--- CREATE MATERIALIZED VIEW IF NOT EXISTS
CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT COUNT(*) AS n FROM readings;
CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT COUNT(*) AS n FROM readings;
/* duckdb */

--- materialized views in a cascade
CREATE MATERIALIZED VIEW per_sensor AS SELECT sensor_id, MAX(value) AS top FROM readings GROUP BY sensor_id;
CREATE MATERIALIZED VIEW per_district AS SELECT s.district, MAX(p.top) AS top FROM per_sensor p JOIN sensors s ON p.sensor_id = s.sensor_id GROUP BY s.district;
CREATE MATERIALIZED VIEW v AS SELECT district FROM per_district WHERE top > 10;

--- a query on a materialized view
CREATE MATERIALIZED VIEW v AS SELECT sensor_id, SUM(value) AS total FROM readings GROUP BY sensor_id;
SELECT sensor_id, total FROM v WHERE total > 1 ORDER BY total DESC LIMIT 2;

--- a view that is not materialized
CREATE VIEW hot AS SELECT * FROM readings WHERE value > 20;
CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS n FROM hot;

--- DROP of a materialized view
CREATE MATERIALIZED VIEW gone AS SELECT 1 AS one FROM readings;
DROP MATERIALIZED VIEW gone;
/* duckdb DROP VIEW gone; */
CREATE MATERIALIZED VIEW v AS SELECT reading_id FROM readings;

--- tumble() beside the rows
CREATE MATERIALIZED VIEW v AS SELECT reading_id, window_start, window_end FROM TUMBLE(readings, taken_at, INTERVAL '10 MINUTES');
/* duckdb CREATE VIEW v AS SELECT reading_id, time_bucket(INTERVAL 10 MINUTE, taken_at) AS window_start, time_bucket(INTERVAL 10 MINUTE, taken_at) + INTERVAL 10 MINUTE AS window_end FROM readings; */

--- an aggregate per tumbling window
CREATE MATERIALIZED VIEW v AS
SELECT window_start, sensor_id, AVG(value) AS mean FROM TUMBLE(readings, taken_at, INTERVAL '5 minutes') GROUP BY window_start, sensor_id;
/* duckdb CREATE VIEW v AS SELECT time_bucket(INTERVAL 5 MINUTE, taken_at) AS window_start, sensor_id, AVG(value) AS mean FROM readings GROUP BY ALL; */

--- a tumbling window with an offset
CREATE MATERIALIZED VIEW v AS
SELECT window_start, COUNT(*) AS n FROM TUMBLE(readings, taken_at, INTERVAL '10 MINUTES', INTERVAL '2 MINUTES') GROUP BY window_start;
/* duckdb CREATE VIEW v AS SELECT time_bucket(INTERVAL 10 MINUTE, taken_at - INTERVAL 2 MINUTE) + INTERVAL 2 MINUTE AS window_start, COUNT(*) AS n FROM readings GROUP BY 1; */

--- an aggregate per hopping window
CREATE MATERIALIZED VIEW v AS
SELECT window_start, window_end, COUNT(value) AS n FROM HOP(readings, taken_at, INTERVAL '5 MINUTES', INTERVAL '10 MINUTES') GROUP BY window_start, window_end;
/* duckdb CREATE VIEW v AS SELECT b - INTERVAL (5 * i) MINUTE AS window_start, b - INTERVAL (5 * i) MINUTE + INTERVAL 10 MINUTE AS window_end, COUNT(value) AS n FROM (SELECT *, time_bucket(INTERVAL 5 MINUTE, taken_at) AS b FROM readings), range(2) r(i) GROUP BY 1, 2; */

--- a join of two tumbling windows
CREATE MATERIALIZED VIEW v AS
SELECT r.reading_id, a.message, r.window_start
FROM TUMBLE(readings, taken_at, INTERVAL '10 minutes') r JOIN TUMBLE(alarms, raised_at, INTERVAL '10 minutes') a
ON r.sensor_id = a.sensor_id AND r.window_start = a.window_start;
/* duckdb CREATE VIEW v AS SELECT r.reading_id, a.message, time_bucket(INTERVAL 10 MINUTE, taken_at) AS window_start FROM readings r JOIN alarms a ON r.sensor_id = a.sensor_id AND time_bucket(INTERVAL 10 MINUTE, taken_at) = time_bucket(INTERVAL 10 MINUTE, raised_at); */

--- EMIT ON WINDOW CLOSE
CREATE TABLE passes (id INT, passed_at TIMESTAMP, WATERMARK FOR passed_at AS passed_at - INTERVAL '5 seconds') APPEND ONLY;
/* duckdb CREATE TABLE passes (id INT, passed_at TIMESTAMP); */
CREATE MATERIALIZED VIEW v AS
SELECT window_start, COUNT(*) AS n FROM TUMBLE(passes, passed_at, INTERVAL '5 minutes') GROUP BY window_start EMIT ON WINDOW CLOSE;
/* duckdb CREATE VIEW v (window_start, n) AS VALUES (TIMESTAMP '2024-07-01 10:00:00', 2); */
INSERT INTO passes VALUES (1, '2024-07-01 10:00:00'), (2, '2024-07-01 10:04:59');
INSERT INTO passes VALUES (3, '2024-07-01 10:05:06');

--- a temporal filter; refused: NOW()
CREATE MATERIALIZED VIEW v AS SELECT * FROM readings WHERE taken_at > NOW() - INTERVAL '1 hour';

--- a table with a watermark, and rows that are late
CREATE TABLE passes (id INT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5 seconds') APPEND ONLY;
/* duckdb CREATE TABLE passes (id INT, "at" TIMESTAMP); */
CREATE MATERIALIZED VIEW v AS SELECT id FROM passes;
/* duckdb CREATE VIEW v (id) AS VALUES (1), (2), (4); */
INSERT INTO passes VALUES (1, '2024-07-01 10:00:00'), (2, '2024-07-01 10:04:59');
INSERT INTO passes VALUES (3, '2024-07-01 10:04:53'), (4, '2024-07-01 10:04:54');

--- a source of Kafka; refused: SOURCE
CREATE SOURCE passes (id INT, at TIMESTAMP) WITH (connector = 'kafka', topic = 'passes', properties.bootstrap.server = 'localhost:9092') FORMAT PLAIN ENCODE JSON;

--- a sink; refused: SINK
CREATE MATERIALIZED VIEW v AS SELECT sensor_id, value FROM readings;
CREATE SINK out FROM v WITH (connector = 'kafka', topic = 'out') FORMAT UPSERT ENCODE JSON;

--- a generated column
CREATE TABLE boxes (w INT, h INT, area INT AS w * h);
/* duckdb CREATE TABLE boxes (w INT, h INT, area INT AS (w * h)); */
INSERT INTO boxes (h, w) VALUES (2, 3), (4, NULL), (6, 1);
UPDATE boxes SET w = h WHERE area > 5;
CREATE MATERIALIZED VIEW v AS SELECT area, COUNT(*) AS n FROM boxes GROUP BY area;

--- an append-only table
CREATE TABLE events (id INT, what VARCHAR) APPEND ONLY;
/* duckdb CREATE TABLE events (id INT, what VARCHAR); */
INSERT INTO events VALUES (1, 'on'), (1, 'on'), (2, 'off');
CREATE MATERIALIZED VIEW v AS SELECT what, COUNT(*) AS n FROM events GROUP BY what;

--- a table that overwrites rows of the same key
CREATE TABLE state (id INT PRIMARY KEY, what VARCHAR) ON CONFLICT OVERWRITE;
/* duckdb CREATE TABLE state (id INT PRIMARY KEY, what VARCHAR); */
INSERT INTO state VALUES (1, 'on'), (2, 'on');
INSERT INTO state VALUES (1, 'off');
/* duckdb UPDATE state SET what = 'off' WHERE id = 1; */
CREATE MATERIALIZED VIEW v AS SELECT what, COUNT(*) AS n FROM state GROUP BY what;

--- a table that keeps the first row of a key
CREATE TABLE state (id INT PRIMARY KEY, what VARCHAR) ON CONFLICT DO NOTHING;
/* duckdb CREATE TABLE state (id INT PRIMARY KEY, what VARCHAR); */
INSERT INTO state VALUES (1, 'on'), (2, 'on');
INSERT INTO state VALUES (1, 'off');
/* duckdb */

--- an equi join
CREATE MATERIALIZED VIEW v AS SELECT readings.*, alarms.message FROM readings JOIN alarms ON readings.sensor_id = alarms.sensor_id AND alarms.level > 1;

--- a left join with a condition on one side
CREATE MATERIALIZED VIEW v AS
SELECT s.sensor_id, s.kind, r.value FROM sensors AS s LEFT JOIN readings AS r ON s.sensor_id = r.sensor_id AND r.value > 1.0;

--- an interval join
CREATE MATERIALIZED VIEW v AS
SELECT r.reading_id, a.message FROM readings r JOIN alarms a
ON r.sensor_id = a.sensor_id AND a.raised_at BETWEEN r.taken_at AND r.taken_at + INTERVAL '1 minute';

--- a process-time temporal join
CREATE TABLE limits (sensor_id INT PRIMARY KEY, top INT);
INSERT INTO limits VALUES (1, 20);
CREATE TABLE checks (id INT PRIMARY KEY, sensor_id INT);
CREATE MATERIALIZED VIEW v AS SELECT c.id, l.top FROM checks c JOIN limits FOR SYSTEM_TIME AS OF PROCTIME() AS l ON c.sensor_id = l.sensor_id;
/* duckdb CREATE VIEW v (id, top) AS VALUES (1, 20), (2, 25); */
INSERT INTO checks VALUES (1, 1);
UPDATE limits SET top = 25 WHERE sensor_id = 1;
INSERT INTO checks VALUES (2, 1);

--- an ASOF join
CREATE MATERIALIZED VIEW v AS SELECT a.message, r.value FROM alarms a ASOF LEFT JOIN readings r ON a.sensor_id = r.sensor_id AND r.taken_at <= a.raised_at;

--- a chain of joins over three tables
CREATE MATERIALIZED VIEW v AS
SELECT s.district, a.message, COUNT(r.reading_id) AS n
FROM sensors s JOIN alarms a ON a.sensor_id = s.sensor_id LEFT JOIN readings r ON r.sensor_id = s.sensor_id AND r.taken_at <= a.raised_at
GROUP BY s.district, a.message;

--- top-N per group
CREATE MATERIALIZED VIEW v AS
SELECT sensor_id, reading_id, value FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY sensor_id ORDER BY taken_at DESC) AS rank FROM readings)
WHERE rank <= 2;

--- the top of all, with RANK
CREATE MATERIALIZED VIEW v AS SELECT * FROM (SELECT reading_id, value, RANK() OVER (ORDER BY value DESC NULLS LAST) AS r FROM readings) WHERE r <= 3;

--- a lag between rows
CREATE MATERIALIZED VIEW v AS
SELECT reading_id, value - LAG(value) OVER (PARTITION BY sensor_id ORDER BY taken_at) AS step FROM readings;

--- a moving average of rows
CREATE MATERIALIZED VIEW v AS
SELECT reading_id, AVG(value) OVER (PARTITION BY sensor_id ORDER BY taken_at ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS mean FROM readings;

--- sessions by a window frame; refused: SESSION
CREATE MATERIALIZED VIEW v AS
SELECT reading_id, FIRST_VALUE(taken_at) OVER (PARTITION BY sensor_id ORDER BY taken_at SESSION WITH GAP INTERVAL '5 minutes') AS began FROM readings;

--- first_value and last_value as aggregates
CREATE MATERIALIZED VIEW v AS
SELECT sensor_id, first_value(value ORDER BY taken_at) AS first, last_value(value ORDER BY taken_at) AS last FROM readings GROUP BY sensor_id;
/* duckdb CREATE VIEW v AS SELECT sensor_id, arg_min_null(value, taken_at) AS first, arg_max_null(value, taken_at) AS last FROM readings GROUP BY sensor_id; */

--- string_agg and array_agg
CREATE MATERIALIZED VIEW v AS
SELECT sensor_id, string_agg(message, '; ' ORDER BY raised_at) AS said, array_agg(level ORDER BY raised_at) AS levels FROM alarms GROUP BY sensor_id;

--- aggregates with FILTER and DISTINCT
CREATE MATERIALIZED VIEW v AS
SELECT COUNT(*) FILTER (WHERE value > 20) AS hot, COUNT(DISTINCT sensor_id) AS sensors, SUM(DISTINCT sensor_id) AS s, BOOL_OR(value IS NULL) AS broken FROM readings;

--- approximate and exact statistics
CREATE MATERIALIZED VIEW v AS
SELECT stddev_pop(value) AS p, stddev_samp(value) AS s, var_samp(value) AS v, percentile_cont(0.5) WITHIN GROUP (ORDER BY value) AS median FROM readings;
/* duckdb CREATE VIEW v AS SELECT stddev_pop(value::double) AS p, stddev_samp(value::double) AS s, var_samp(value::double) AS v, quantile_cont(value::double, 0.5) AS median FROM readings; */

--- approx_count_distinct
CREATE MATERIALIZED VIEW v AS SELECT approx_count_distinct(sensor_id) AS n FROM readings;

--- bitwise aggregates
CREATE MATERIALIZED VIEW v AS SELECT bit_and(level) AS a, bit_or(level) AS o, bit_xor(level) AS x FROM alarms;

--- GROUPING SETS
CREATE MATERIALIZED VIEW v AS SELECT district, kind, COUNT(*) AS n, MAX(height) AS h FROM sensors GROUP BY GROUPING SETS ((district, kind), (kind), ());

--- UNION ALL of a table and a view
CREATE MATERIALIZED VIEW hot AS SELECT sensor_id, taken_at AS noted FROM readings WHERE value > 20;
CREATE MATERIALIZED VIEW v AS SELECT sensor_id, noted FROM hot UNION ALL SELECT sensor_id, raised_at FROM alarms;

--- EXCEPT and INTERSECT
CREATE MATERIALIZED VIEW v AS SELECT sensor_id FROM sensors EXCEPT SELECT sensor_id FROM readings;
CREATE MATERIALIZED VIEW w AS SELECT sensor_id FROM sensors INTERSECT SELECT sensor_id FROM alarms;

--- UNION with CORRESPONDING
CREATE MATERIALIZED VIEW v AS SELECT sensor_id, level FROM alarms UNION CORRESPONDING SELECT value, sensor_id FROM readings;
/* duckdb CREATE VIEW v AS SELECT sensor_id FROM alarms UNION SELECT sensor_id FROM readings; */

--- SELECT * EXCEPT
CREATE MATERIALIZED VIEW v AS SELECT * EXCEPT (taken_at) FROM readings;
/* duckdb CREATE VIEW v AS SELECT * EXCLUDE (taken_at) FROM readings; */

--- WITH and sub-queries
CREATE MATERIALIZED VIEW v AS
WITH means AS (SELECT sensor_id, AVG(value) AS m FROM readings GROUP BY sensor_id)
SELECT r.reading_id FROM readings r JOIN means ON means.sensor_id = r.sensor_id WHERE r.value >= means.m AND r.sensor_id IN (SELECT sensor_id FROM sensors);

--- EXISTS
CREATE MATERIALIZED VIEW v AS SELECT sensor_id, kind FROM sensors s WHERE NOT EXISTS (SELECT 1 FROM alarms a WHERE a.sensor_id = s.sensor_id);

--- a scalar sub-query
CREATE MATERIALIZED VIEW v AS SELECT reading_id, value > (SELECT AVG(value) FROM readings) AS above FROM readings;

--- conditions and casts
CREATE MATERIALIZED VIEW v AS
SELECT sensor_id, CASE WHEN height > 5 THEN 'high' ELSE 'low' END AS h, COALESCE(district, '?') AS d, height::INT AS i, sensor_id::VARCHAR || '#' AS t, kind IN ('heat', 'wind') AS k,
       NULLIF(kind, 'rain') AS n, CAST(height AS NUMERIC) AS m FROM sensors WHERE sensor_id <> 2;
/* duckdb CREATE VIEW v AS
SELECT sensor_id, CASE WHEN height > 5 THEN 'high' ELSE 'low' END AS h, COALESCE(district, '?') AS d, round_even(height, 0)::INT AS i, sensor_id::VARCHAR || '#' AS t, kind IN ('heat', 'wind') AS k,
       NULLIF(kind, 'rain') AS n, height AS m FROM sensors WHERE sensor_id <> 2; */

--- functions of times
CREATE MATERIALIZED VIEW v AS
SELECT reading_id, EXTRACT(HOUR FROM taken_at) AS h, date_trunc('day', taken_at) AS d, to_char(taken_at, 'YYYY-MM-DD HH24:MI:SS') AS t, taken_at + INTERVAL '1 hour 30 minutes' AS n,
       taken_at::DATE AS day, taken_at::TIME AS clock, EXTRACT(EPOCH FROM taken_at) AS e FROM readings;
/* duckdb CREATE VIEW v AS
SELECT reading_id, EXTRACT(HOUR FROM taken_at) AS h, date_trunc('day', taken_at) AS d, strftime(taken_at, '%Y-%m-%d %H:%M:%S') AS t, taken_at + INTERVAL 90 MINUTE AS n,
       taken_at::DATE AS day, taken_at::TIME AS clock, EXTRACT(EPOCH FROM taken_at) AS e FROM readings; */

--- moments with a time zone
CREATE MATERIALIZED VIEW v AS SELECT sensor_id, installed AT TIME ZONE 'Europe/Paris' AS local, installed > '2023-06-01 00:00:00+00:00' AS late, date_trunc('month', installed, 'UTC') AS month FROM sensors;
/* duckdb CREATE VIEW v AS SELECT sensor_id, installed AT TIME ZONE 'Europe/Paris' AS local, installed > '2023-06-01 00:00:00+00:00' AS late, date_trunc('month', installed) AS month FROM sensors; */

--- functions of texts
CREATE MATERIALIZED VIEW v AS
SELECT sensor_id, lower(upper(kind)) AS l, length(kind) AS n, substr(kind, 2, 2) AS s, split_part(kind, 'a', 1) AS p, regexp_match(kind, '(.)a') AS m, starts_with(kind, 'h') AS h,
       concat_ws('-', district, kind) AS c, trim(kind) AS t, replace(kind, 'a', '') AS r, translate(kind, 'ai', 'xy') AS x, rpad(kind, 6, '.') AS d FROM sensors;
/* duckdb CREATE VIEW v AS
SELECT sensor_id, lower(upper(kind)) AS l, length(kind) AS n, substr(kind, 2, 2) AS s, split_part(kind, 'a', 1) AS p, CASE kind WHEN 'heat' THEN ['e'] WHEN 'rain' THEN ['r'] END AS m, starts_with(kind, 'h') AS h,
       concat_ws('-', district, kind) AS c, trim(kind) AS t, replace(kind, 'a', '') AS r, translate(kind, 'ai', 'xy') AS x, rpad(kind, 6, '.') AS d FROM sensors; */

--- bitwise operators and division
CREATE MATERIALIZED VIEW v AS SELECT sensor_id, level & 1 AS a, level | 4 AS o, level << 1 AS s, level / 2 AS d, level % 2 AS m FROM alarms;
/* duckdb CREATE VIEW v AS SELECT sensor_id, level & 1 AS a, level | 4 AS o, level << 1 AS s, level // 2 AS d, level % 2 AS m FROM alarms; */

--- structs
CREATE TABLE trucks (id INT PRIMARY KEY, place STRUCT<lat DOUBLE, lon DOUBLE>);
/* duckdb CREATE TABLE trucks (id INT PRIMARY KEY, place STRUCT(lat DOUBLE, lon DOUBLE)); */
INSERT INTO trucks VALUES (1, ROW(1.5, 2.5));
/* duckdb INSERT INTO trucks VALUES (1, ROW(1.5, 2.5)); */
CREATE MATERIALIZED VIEW v AS SELECT id, (place).lat AS lat, (place).lon + 1 AS lon FROM trucks;

--- arrays with subscripts
CREATE TABLE routes (id INT PRIMARY KEY, stops VARCHAR[]);
INSERT INTO routes VALUES (1, ARRAY['a', 'b', 'c']), (2, NULL);
CREATE MATERIALIZED VIEW v AS SELECT id, stops[1] AS first, array_length(stops) AS n, array_position(stops, 'b') AS b, 'c' = ANY(stops) AS c, array_cat(stops, ARRAY['z']) AS z, array_remove(stops, 'a') AS r FROM routes;
/* duckdb CREATE VIEW v AS SELECT id, stops[1] AS first, len(stops) AS n, list_position(stops, 'b') AS b, list_contains(stops, 'c') AS c, CASE WHEN stops IS NULL THEN ['z'] ELSE list_concat(stops, ['z']) END AS z, list_filter(stops, lambda x: x <> 'a') AS r FROM routes; */

--- unnest
CREATE TABLE routes (id INT PRIMARY KEY, stops VARCHAR[]);
INSERT INTO routes VALUES (1, ARRAY['a', 'b', 'c']), (2, NULL);
CREATE MATERIALIZED VIEW v AS SELECT id, unnest(stops) AS stop FROM routes;

--- jsonb
CREATE TABLE raw (id INT PRIMARY KEY, body JSONB);
/* duckdb CREATE TABLE raw (id INT PRIMARY KEY, body JSON); */
INSERT INTO raw VALUES (1, '{"a": {"b": 2}}'), (2, NULL);
CREATE MATERIALIZED VIEW v AS SELECT id, (body -> 'a' ->> 'b')::INT AS b FROM raw;

--- UPDATE and DELETE of rows
UPDATE alarms SET level = level + 1, message = message || '!' WHERE sensor_id = 3;
DELETE FROM alarms WHERE level >= 3;
CREATE MATERIALIZED VIEW v AS SELECT * FROM alarms;

--- INSERT of a query
CREATE TABLE peaks (sensor_id INT PRIMARY KEY, top REAL);
INSERT INTO peaks SELECT sensor_id, MAX(value) FROM readings WHERE value IS NOT NULL GROUP BY sensor_id;
CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS n, MAX(top) AS top FROM peaks;

--- an index on a view; refused: CREATE INDEX
CREATE MATERIALIZED VIEW v AS SELECT sensor_id, value FROM readings;
CREATE INDEX by_sensor ON v (sensor_id);
/* duckdb */

--- a subscription; refused: SUBSCRIPTION
CREATE MATERIALIZED VIEW v AS SELECT sensor_id, value FROM readings;
CREATE SUBSCRIPTION sub FROM v WITH (retention = '1D');

--- SET of a session variable before a view; refused: SET streaming_parallelism
SET streaming_parallelism = 4;
/* duckdb */
CREATE MATERIALIZED VIEW v AS SELECT DISTINCT sensor_id FROM readings;

--- generate_series as a source of rows; refused: generate_series
CREATE MATERIALIZED VIEW v AS SELECT * FROM generate_series(1, 5);
