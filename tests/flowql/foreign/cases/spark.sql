CREATE TABLE t (id BIGINT, s STRING, m MAP<STRING, INT>, arr ARRAY<STRING>, d DECIMAL(10,2), n INT, x DOUBLE, day DATE, ts TIMESTAMP, day2 DATE) USING delta PARTITIONED BY (s) COMMENT 'x';
SELECT date_format(ts, 'yyyy-MM-dd HH:mm:ss'), n / 2, n DIV 2, datediff(day, day2), cardinality(arr), size(arr), nvl(n, 0), weekofyear(day), date_trunc('WEEK', ts), s <=> 'x', arr[0], m['k'], date_add(day, 3), year(ts), month(day), dayofweek(day) FROM t;
SELECT id, x2 FROM t LATERAL VIEW explode(arr) e AS x2;
SELECT id, x2 FROM t LATERAL VIEW OUTER explode(arr) e AS x2;
SELECT s, max_by(id, x) AS best, count(DISTINCT n) AS c, avg(n) AS a, stddev(x) AS sd FROM t GROUP BY s;
SELECT s, collect_list(id) FROM t GROUP BY s;
SELECT s RLIKE 'a.*', regexp_replace(s, 'a', 'b') FROM t;
SELECT * FROM t LEFT ANTI JOIN t AS u ON t.id = u.id;
SELECT cast(x AS INT), cast(s AS DATE), concat(s, '-', n), concat_ws('-', s, 'b'), substring(s, 1, 3), instr(s, 'a'), trim(s), if(n > 1, 'a', 'b') FROM t ORDER BY n;
CREATE OR REPLACE TEMPORARY VIEW w AS SELECT s, sum(n) AS total FROM t GROUP BY s;
CREATE VIEW w AS SELECT s, sum(n) AS total FROM t GROUP BY s;
INSERT INTO t (id, s) VALUES (1, 'a');
SELECT from_unixtime(id), unix_timestamp(ts), to_date(s, 'yyyyMMdd'), add_months(day, 1), last_day(day), day - interval 1 day, ts + INTERVAL 2 HOURS FROM t
