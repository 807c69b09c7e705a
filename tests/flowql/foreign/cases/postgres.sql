CREATE TABLE t (id SERIAL PRIMARY KEY, s VARCHAR(20) NOT NULL, n NUMERIC(10,2) CHECK (n > 0), ts TIMESTAMPTZ DEFAULT now(), tags TEXT[], j JSONB, x REAL);
CREATE TABLE u (id BIGINT GENERATED ALWAYS AS IDENTITY, s TEXT, n INT DEFAULT 1, PRIMARY KEY (id));
CREATE TABLE p (id INT PRIMARY KEY, s TEXT, n INT, d DATE, ts TIMESTAMP);
CREATE MATERIALIZED VIEW v AS SELECT s, COUNT(*) FILTER (WHERE n > 1) AS c, array_agg(id ORDER BY id) AS ids FROM p GROUP BY s;
SELECT s || 'x', n / 2, n::float8 / 2, 1e3, to_char(ts, 'YYYY'), age(ts), extract(epoch from ts), generate_series FROM p, generate_series(1, 3);
SELECT * FROM p JOIN LATERAL (SELECT id AS i FROM u WHERE u.n = p.n ORDER BY u.id LIMIT 1) AS l ON TRUE;
INSERT INTO p (id, s) VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET s = EXCLUDED.s RETURNING id;
SELECT s FROM p WHERE n IN (SELECT n FROM u) AND s LIKE 'a\_%' ESCAPE '\' ORDER BY s NULLS FIRST;
WITH a AS (SELECT s, sum(n) AS t FROM p GROUP BY s) SELECT a.s, a.t, rank() OVER (ORDER BY t DESC) FROM a;
SELECT row_number() OVER w, lag(n, 1, 0) OVER w FROM p WINDOW w AS (PARTITION BY s ORDER BY id);
SELECT CASE s WHEN 'a' THEN 1 END, s IS DISTINCT FROM 'b', s ~* 'A', position('a' in s), substring(s from 2 for 3), trim(both 'x' from s) FROM p;
SELECT date_trunc('week', ts), d + 7, d - DATE '2024-01-01', ts AT TIME ZONE 'Europe/Oslo', interval '1 day' * 3 FROM p;
COPY t FROM 'x'
