CREATE TABLE t (id int NOT NULL, s text, ts timestamp, j jsonb);
CREATE MATERIALIZED VIEW v IN CLUSTER c AS SELECT s, count(*) AS n FROM t GROUP BY s;
CREATE VIEW w AS SELECT DISTINCT ON (s) s, id FROM t ORDER BY s, id DESC;
CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') FORMAT JSON;
CREATE MATERIALIZED VIEW recent AS SELECT id FROM t WHERE mz_now() <= ts + INTERVAL '1 day';
CREATE INDEX i ON v (s);
SELECT j->'a'->>'b', s::int, (j->>'n')::numeric * 2, coalesce(s, 'x'), date_bin('15 minutes', ts, '2024-01-01') FROM t
