-- In the style of PostgreSQL's documentation: its chapters of queries, types, functions and changes, over boats and their trips.

--- tables
CREATE TABLE boats (
    id       integer PRIMARY KEY,
    name     varchar(80) NOT NULL,
    harbour  text,
    length   numeric(5, 2),     -- in metres
    built    date,
    motor    boolean DEFAULT false
);
CREATE TABLE trips (
    id       bigint PRIMARY KEY,
    boat     int,
    left_at  timestamp,
    back_at  timestamp,
    fish     int,
    fee      numeric(8, 2),
    note     text
);
INSERT INTO boats VALUES
    (1, 'Alke', 'Bergen', 7.50, '1998-04-01', true),
    (2, 'Borea', 'Bergen', 12.25, '2004-11-30', false),
    (3, 'Calla', 'Husum', 9.00, '2015-02-28', true),
    (4, 'Dorsch', NULL, 6.10, NULL, NULL);
INSERT INTO trips (id, boat, left_at, back_at, fish, fee, note) VALUES
    (10, 1, '2024-05-01 06:00', '2024-05-01 15:30', 40, 120.00, 'calm sea'),
    (11, 1, '2024-05-02 05:45', '2024-05-02 18:00', 0, 80.50, NULL),
    (12, 2, '2024-05-02 07:10:30', NULL, NULL, 300.00, 'Storm; returned early'),
    (13, 3, '2024-06-11 04:00', '2024-06-12 04:00', 95, NULL, 'two  days'),
    (14, NULL, '2024-06-30 23:59:59', '2024-07-01 01:00', 5, 10.00, '');

--- changes
INSERT INTO trips VALUES (15, 3, '2024-07-04 08:00', '2024-07-04 12:15', 12, 99.99, 'calm again');
UPDATE trips SET fish = 20, note = 'calm sea, late' WHERE id = 11;
UPDATE boats SET harbour = 'Husum' WHERE name = 'Borea';
DELETE FROM trips WHERE id = 10;
INSERT INTO boats (id, name) VALUES (5, 'Elritze');
DELETE FROM boats WHERE id = 4;

--- an expression in a select list, named
CREATE VIEW v AS SELECT id, name, length * 3.28 AS feet, (built IS NULL) AS unknown FROM boats;

--- WHERE with AND, OR and NOT
CREATE VIEW v AS SELECT * FROM trips WHERE boat = 1 AND fish > 0 OR NOT (fee < 200);

--- an inner join with qualified names
CREATE MATERIALIZED VIEW v AS
SELECT boats.name, trips.left_at, trips.fish
    FROM trips JOIN boats ON trips.boat = boats.id;

--- a join as a list of tables with a condition
CREATE VIEW v AS SELECT b.name, t.fee FROM boats b, trips AS t WHERE b.id = t.boat AND t.fee IS NOT NULL;

--- a left outer join keeps what has no partner
CREATE VIEW v AS SELECT b.id, name, t.id AS trip FROM boats b LEFT OUTER JOIN trips t ON b.id = t.boat;

--- a full outer join
CREATE VIEW v AS SELECT b.name, t.id FROM boats b FULL JOIN trips t ON b.id = t.boat AND t.fish > 10;

--- a table joined with itself
CREATE VIEW v AS
SELECT a.name AS longer, b.name AS shorter, a.length - b.length AS by FROM boats a JOIN boats b ON a.length > b.length;

--- a condition of the join beside one of WHERE
CREATE VIEW v AS SELECT b.name, t.id FROM boats b LEFT JOIN trips t ON b.id = t.boat AND t.fee > 100 WHERE b.length > 7;

--- USING names the column once
CREATE TABLE owners (id int PRIMARY KEY, owner text);
INSERT INTO owners VALUES (1, 'ann'), (3, 'bo'), (9, 'cy');
CREATE VIEW v AS SELECT * FROM boats JOIN owners USING (id);

--- NATURAL LEFT JOIN
CREATE TABLE owners (id int PRIMARY KEY, owner text);
INSERT INTO owners VALUES (1, 'ann'), (3, 'bo'), (9, 'cy');
CREATE VIEW v AS SELECT id, name, owner FROM boats NATURAL LEFT JOIN owners;

--- CROSS JOIN
CREATE VIEW v AS SELECT b.name, t.id FROM boats b CROSS JOIN trips t WHERE t.fish > 30;

--- an aggregate of the whole table
CREATE VIEW v AS SELECT max(fee) AS top, min(fish) AS least, count(*), count(fish) AS counted, avg(fee) AS mean FROM trips;

--- an aggregate in a sub-query of WHERE
CREATE VIEW v AS SELECT name FROM boats WHERE length = (SELECT max(length) FROM boats);

--- GROUP BY with HAVING and FILTER
CREATE VIEW v AS
SELECT boat, count(*) FILTER (WHERE fee >= 100) AS dear, max(fish) AS best
    FROM trips WHERE note LIKE '%calm%' OR fee > 50
    GROUP BY boat
    HAVING max(coalesce(fish, 0)) < 90;

--- GROUP BY the position and the name of an item
CREATE VIEW v AS
SELECT extract(month FROM left_at) AS month, boat AS b, sum(fee) AS fees FROM trips GROUP BY 1, b;

--- a view on a view
CREATE VIEW totals AS SELECT boat, sum(fish) AS fish FROM trips GROUP BY boat;
CREATE VIEW v AS SELECT name, totals.fish FROM boats, totals WHERE totals.boat = boats.id ORDER BY name;

--- a window function beside each row
CREATE VIEW v AS SELECT id, boat, fee, avg(fee) OVER (PARTITION BY boat) AS mean FROM trips;

--- ranks, with a window that has a name
CREATE VIEW v AS
SELECT id, harbour, rank() OVER w AS rank, dense_rank() OVER w AS dense, row_number() OVER w AS row
    FROM boats WHERE harbour IS NOT NULL WINDOW w AS (PARTITION BY harbour ORDER BY length DESC);

--- a running sum
CREATE VIEW v AS SELECT id, fee, sum(fee) OVER (ORDER BY left_at) AS so_far FROM trips;

--- a window function filtered in an outer query
CREATE VIEW v AS
SELECT name, length FROM
  (SELECT name, length, rank() OVER (PARTITION BY harbour ORDER BY length DESC, id) AS pos FROM boats) AS ss
WHERE pos < 2;

--- lag, lead and the first value of a frame
CREATE VIEW v AS
SELECT id, lag(fish) OVER w AS before, lead(fish, 2, -1) OVER w AS later,
       first_value(id) OVER (w ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS first
FROM trips WINDOW w AS (ORDER BY left_at);

--- ntile, percent_rank and cume_dist
CREATE VIEW v AS
SELECT id, ntile(2) OVER (ORDER BY id) AS half, percent_rank() OVER (ORDER BY id) AS pr, cume_dist() OVER (ORDER BY id) AS cd FROM trips;

--- UNION removes doubles and UNION ALL keeps them
CREATE VIEW v AS SELECT harbour FROM boats UNION SELECT note FROM trips;
CREATE VIEW w AS SELECT boat AS n FROM trips UNION ALL SELECT id FROM boats;

--- INTERSECT binds closer than EXCEPT
CREATE VIEW v AS SELECT id FROM boats EXCEPT SELECT boat FROM trips INTERSECT SELECT id FROM boats WHERE id = 3;
/* duckdb CREATE VIEW v AS SELECT id FROM boats EXCEPT (SELECT boat FROM trips INTERSECT SELECT id FROM boats WHERE id = 3); */

--- DISTINCT, and DISTINCT ON with its order
CREATE VIEW v AS SELECT DISTINCT harbour FROM boats;
CREATE VIEW w AS SELECT DISTINCT ON (boat) boat, id, fee FROM trips ORDER BY boat, left_at DESC;

--- ORDER BY with LIMIT and OFFSET
CREATE VIEW v AS SELECT id, fee FROM trips ORDER BY fee DESC NULLS LAST, id LIMIT 2 OFFSET 1;

--- FETCH FIRST in the words of the standard
CREATE VIEW v AS SELECT name FROM boats ORDER BY length DESC, id FETCH FIRST 2 ROWS ONLY;

--- WITH queries that build on one another
CREATE VIEW v AS
WITH fees AS (
    SELECT boat, sum(fee) AS total FROM trips GROUP BY boat
), top AS (
    SELECT boat FROM fees WHERE total > (SELECT sum(total) / 10 FROM fees)
)
SELECT t.id, t.boat, t.fish FROM trips t WHERE t.boat IN (SELECT boat FROM top);

--- WITH RECURSIVE; refused: RECURSIVE
CREATE VIEW v AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i FROM n;

--- VALUES as a table
CREATE VIEW v AS SELECT t.id, k.label FROM trips t JOIN (VALUES (1, 'one'), (3, 'three')) AS k (boat, label) ON k.boat = t.boat;

--- LATERAL
CREATE VIEW v AS
SELECT b.name, l.id FROM boats b, LATERAL (SELECT t.id FROM trips t WHERE t.boat = b.id ORDER BY t.left_at DESC LIMIT 1) l;

--- generate_series with a join
CREATE VIEW v AS SELECT n, t.id FROM generate_series(1, 3) AS g(n) LEFT JOIN trips t ON t.boat = g.n;

--- GROUPING SETS, ROLLUP and CUBE
CREATE VIEW v AS SELECT harbour, motor, count(*) AS n FROM boats GROUP BY GROUPING SETS ((harbour), (motor), ());
CREATE VIEW w AS SELECT harbour, motor, sum(length) AS s FROM boats GROUP BY ROLLUP (harbour, motor);

--- EXISTS and NOT EXISTS with an outer name
CREATE VIEW v AS SELECT name FROM boats b WHERE EXISTS (SELECT 1 FROM trips t WHERE t.boat = b.id AND t.fish > 10);
CREATE VIEW w AS SELECT name FROM boats b WHERE NOT EXISTS (SELECT 1 FROM trips WHERE boat = b.id);

--- IN and NOT IN with NULLs on the right
CREATE VIEW v AS SELECT id FROM boats WHERE id NOT IN (SELECT boat FROM trips);
CREATE VIEW w AS SELECT id FROM boats WHERE id NOT IN (SELECT boat FROM trips WHERE boat IS NOT NULL);

--- ANY and ALL of a sub-query
CREATE VIEW v AS SELECT id FROM trips WHERE fee >= ALL (SELECT fee FROM trips WHERE fee IS NOT NULL);
CREATE VIEW w AS SELECT id FROM trips WHERE boat = ANY (SELECT id FROM boats WHERE motor);

--- rows that are compared as wholes
CREATE VIEW v AS SELECT id FROM trips WHERE (boat, fish) IN ((1, 20), (3, 12));
CREATE VIEW w AS SELECT id FROM trips WHERE (boat, fee) < (2, 90.00);

--- IS DISTINCT FROM, IS TRUE and IS UNKNOWN
CREATE VIEW v AS
SELECT id, boat IS DISTINCT FROM 1 AS other, (fish > 10) IS TRUE AS many, (fish > 10) IS UNKNOWN AS unsure, (fee > 100) IS NOT FALSE AS n
FROM trips;
/* duckdb CREATE VIEW v AS
SELECT id, boat IS DISTINCT FROM 1 AS other, coalesce(fish > 10, false) AS many, (fish > 10) IS NULL AS unsure, coalesce(fee > 100, true) AS n
FROM trips; */

--- BETWEEN SYMMETRIC and ISNULL
CREATE VIEW v AS SELECT id, fish BETWEEN SYMMETRIC 50 AND 10 AS mid, note ISNULL AS silent, note NOTNULL AS said FROM trips;
/* duckdb CREATE VIEW v AS SELECT id, fish BETWEEN 10 AND 50 AS mid, note IS NULL AS silent, note IS NOT NULL AS said FROM trips; */

--- CASE in both forms, COALESCE, NULLIF, GREATEST and LEAST
CREATE VIEW v AS
SELECT id, CASE WHEN fish > 30 THEN 'rich' WHEN fish > 0 THEN 'some' ELSE 'none' END AS catch,
       CASE boat WHEN 1 THEN 'one' WHEN 2 THEN 'two' END AS no,
       coalesce(note, 'nothing') AS c, nullif(note, '') AS n, greatest(fish, 10, boat) AS g, least(fee, 100) AS l
FROM trips;

--- the functions of numbers
CREATE VIEW v AS
SELECT id, mod(fish, 7) AS m, fish % 7 AS p, abs(-fish) AS a, round(fee / 7, 2) AS r, ceil(fee) AS c, floor(-fee) AS f,
       sign(fish) AS s, power(2, 3) AS w, sqrt(16.0) AS q, div(fish, 4) AS d, trunc(fee, 1) AS t FROM trips;
/* duckdb CREATE VIEW v AS
SELECT id, fish % 7 AS m, fish % 7 AS p, abs(-fish) AS a, round(CAST(fee AS DOUBLE) / 7, 2) AS r, ceil(fee) AS c, floor(-fee) AS f,
       sign(fish) AS s, power(2, 3) AS w, sqrt(16.0) AS q, fish // 4 AS d, trunc(fee * 10) / CAST(10 AS DOUBLE) AS t FROM trips; */

--- division of whole numbers, and the operators of bits
CREATE VIEW v AS SELECT id, fish / 7 AS d, -fish / 7 AS e, fish & 6 AS a, fish | 1 AS o, fish # 5 AS x, ~fish AS n, fish << 2 AS l, fish >> 1 AS r FROM trips;
/* duckdb CREATE VIEW v AS SELECT id, fish // 7 AS d, -(fish // 7) AS e, fish & 6 AS a, fish | 1 AS o, xor(fish, 5) AS x, ~fish AS n, fish << 2 AS l, fish >> 1 AS r FROM trips; */

--- the functions of texts
CREATE VIEW v AS
SELECT id, upper(name) AS u, lower(name) AS l, char_length(name) AS n, position('l' IN name) AS p, substring(name FROM 2 FOR 3) AS s,
       trim(BOTH 'e' FROM name) AS t, overlay(name PLACING 'XX' FROM 2 FOR 1) AS o, name || ' (' || id || ')' AS c, left(name, 2) AS f,
       right(name, 2) AS r, lpad(name, 8, '.') AS d, repeat('ab', id) AS e, reverse(name) AS v, replace(name, 'l', 'L') AS w FROM boats;
/* duckdb CREATE VIEW v AS
SELECT id, upper(name) AS u, lower(name) AS l, length(name) AS n, strpos(name, 'l') AS p, substring(name, 2, 3) AS s,
       trim(name, 'e') AS t, substring(name, 1, 1) || 'XX' || substring(name, 3) AS o, name || ' (' || id || ')' AS c, left(name, 2) AS f,
       right(name, 2) AS r, lpad(name, 8, '.') AS d, repeat('ab', id) AS e, reverse(name) AS v, replace(name, 'l', 'L') AS w FROM boats; */

--- concat, concat_ws, format, split_part, initcap and starts_with
CREATE VIEW v AS
SELECT id, concat(name, NULL, '-', id) AS c, concat_ws(', ', name, harbour, id) AS w, format('%s in %s', name, harbour) AS f,
       split_part(name, 'l', 1) AS s, initcap('from ' || name) AS i, starts_with(name, 'C') AS b, ascii(name) AS a, chr(65) AS h FROM boats;
/* duckdb CREATE VIEW v AS
SELECT id, concat(name, NULL, '-', id) AS c, concat_ws(', ', name, harbour, id) AS w, concat(name, ' in ', harbour) AS f,
       split_part(name, 'l', 1) AS s, 'From ' || name AS i, starts_with(name, 'C') AS b, ascii(name) AS a, chr(65) AS h FROM boats; */

--- LIKE, ILIKE, SIMILAR TO and regular expressions
CREATE VIEW v AS
SELECT id, note LIKE 'calm%' AS l, note ILIKE 'STORM_ %' AS i, note SIMILAR TO '(calm|two)%' AS s, note ~ '^[a-z]+ ' AS m,
       note !~* 'STORM' AS n, regexp_replace(note, '[aeiou]', '_', 'g') AS r, note ~~ '%sea%' AS o, note !~~* '%SEA%' AS p FROM trips;
/* duckdb CREATE VIEW v AS
SELECT id, note LIKE 'calm%' AS l, note ILIKE 'STORM_ %' AS i, regexp_full_match(note, '(calm|two).*') AS s, regexp_matches(note, '^[a-z]+ ') AS m,
       NOT regexp_matches(note, 'storm', 'i') AS n, regexp_replace(note, '[aeiou]', '_', 'g') AS r, note LIKE '%sea%' AS o, NOT note ILIKE '%SEA%' AS p FROM trips; */

--- string constants: doubled quotes, E'', and one over two lines
CREATE VIEW v AS SELECT id, 'it''s' AS q, E'a\tb\\' AS e, 'foo'
    'bar' AS two FROM boats;
/* duckdb CREATE VIEW v AS SELECT id, 'it''s' AS q, E'a\tb\\' AS e, 'foobar' AS two FROM boats; */

--- quoted names keep their case, others fold
CREATE TABLE "Log Book" ("Day" date, "select" int, PlainName text);
INSERT INTO "Log Book" VALUES ('2024-01-01', 1, 'x');
CREATE VIEW v AS SELECT "Day", "select" AS "from", PLAINNAME FROM "Log Book";

--- numeric constants, casts in three notations and precedence
CREATE VIEW v AS
SELECT id, 1.5e3 AS e, '42'::int + 1 AS c, CAST('7' AS bigint) * 2 AS b, numeric '3.14' AS n, 2 + 3 * 4 ^ 2 AS p, -2 ^ 2 AS m, int4 '5' AS i,
       fish::text || '!' AS t FROM trips;
/* duckdb CREATE VIEW v AS
SELECT id, 1.5e3 AS e, '42'::int + 1 AS c, CAST('7' AS bigint) * 2 AS b, 3.14 AS n, 50 AS p, 4 AS m, 5 AS i,
       fish::text || '!' AS t FROM trips; */

--- the types of numbers under all their names
CREATE TABLE types (a int2, b int4, c int8, d float4, e float8, f smallint, g real, h double precision, i decimal(6, 1), j char(3), k character varying(5), l bool);
INSERT INTO types VALUES (1, 2, 3, 0.5, 0.25, 6, 1.5, 2.5, 7.1, 'abc', 'hello', 't');
CREATE VIEW v AS SELECT a + f AS s, b * c AS p, d + g AS r, e / h AS q, i * 2 AS i, j || k AS t, NOT l AS l FROM types;

--- date and time arithmetic
CREATE VIEW v AS
SELECT id, left_at + interval '1 day 2 hours' AS due, left_at::date + 7 AS week, date '2024-12-24' - left_at::date AS days,
       extract(epoch FROM back_at - left_at) AS took, date_trunc('hour', left_at) AS hour, extract(dow FROM left_at) AS dow,
       date_part('day', left_at) AS day FROM trips;
/* duckdb CREATE VIEW v AS
SELECT id, left_at + interval '26 hours' AS due, left_at::date + 7 AS week, date '2024-12-24' - left_at::date AS days,
       epoch(back_at) - epoch(left_at) AS took, date_trunc('hour', left_at) AS hour, extract(dow FROM left_at) AS dow,
       date_part('day', left_at) AS day FROM trips; */

--- (start, end) OVERLAPS (start, end)
CREATE VIEW v AS SELECT id FROM trips WHERE (left_at, back_at) OVERLAPS (timestamp '2024-05-02 10:00', timestamp '2024-06-11 05:00');
/* duckdb CREATE VIEW v AS SELECT id FROM trips WHERE left_at < timestamp '2024-06-11 05:00' AND back_at > timestamp '2024-05-02 10:00'; */

--- to_char, to_date, to_timestamp and make_date
CREATE VIEW v AS
SELECT id, to_char(left_at, 'DD Mon YYYY HH24:MI') AS t, to_date('05/03/2024', 'DD/MM/YYYY') AS d, make_date(2024, boat, 1) AS m,
       to_char(built, 'YYYY') AS y FROM trips JOIN (SELECT id AS b, built FROM boats) x ON x.b = trips.boat;
/* duckdb CREATE VIEW v AS
SELECT id, strftime(left_at, '%d %b %Y %H:%M') AS t, DATE '2024-03-05' AS d, make_date(2024, boat, 1) AS m,
       strftime(built, '%Y') AS y FROM trips JOIN (SELECT id AS b, built FROM boats) x ON x.b = trips.boat; */

--- age and justify of intervals as text; refused: age
CREATE VIEW v AS SELECT id, age(back_at, left_at)::text AS t FROM trips WHERE id = 13;
/* duckdb CREATE VIEW v AS SELECT id, '1 day' AS t FROM trips WHERE id = 13; */

--- AT TIME ZONE from a local time to a moment and back
CREATE VIEW v AS
SELECT id, left_at AT TIME ZONE 'Europe/Oslo' AS moment, (left_at AT TIME ZONE 'UTC') AT TIME ZONE 'America/Lima' AS lima FROM trips;

--- truth values as words
CREATE TABLE flags (id int PRIMARY KEY, f boolean);
INSERT INTO flags VALUES (1, 'yes'), (2, 'off'), (3, NULL), (4, TRUE);
/* duckdb INSERT INTO flags VALUES (1, true), (2, false), (3, NULL), (4, TRUE); */
CREATE VIEW v AS SELECT id, f AND NOT f AS a, f OR f IS NULL AS o, f::int AS i FROM flags WHERE f IS NOT TRUE OR f;
/* duckdb CREATE VIEW v AS SELECT id, f AND NOT f AS a, f OR f IS NULL AS o, f::int AS i FROM flags; */

--- bytea, encode and decode
CREATE TABLE blobs (id int PRIMARY KEY, b bytea);
INSERT INTO blobs VALUES (1, '\x00ff'), (2, 'abc');
/* duckdb INSERT INTO blobs VALUES (1, '\x00\xff'::blob), (2, 'abc'::blob); */
CREATE VIEW v AS SELECT id, encode(b, 'hex') AS h, octet_length(b) AS n, md5('x' || id) AS m FROM blobs;
/* duckdb CREATE VIEW v AS SELECT id, lower(hex(b)) AS h, octet_length(b) AS n, md5('x' || id) AS m FROM blobs; */

--- arrays: constructors, subscripts, slices and their functions
CREATE TABLE nets (id int PRIMARY KEY, sizes int[], marks text ARRAY);
INSERT INTO nets VALUES (1, ARRAY[3, 5, 8], '{a,b}'), (2, '{}', NULL);
/* duckdb INSERT INTO nets VALUES (1, [3, 5, 8], ['a', 'b']), (2, [], NULL); */
CREATE VIEW v AS
SELECT id, sizes[2] AS second, sizes[1:2] AS two, cardinality(sizes) AS n, array_length(sizes, 1) AS l, sizes || 13 AS more,
       5 = ANY (sizes) AS five, array_to_string(marks, '/') AS m, array_append(sizes, 1) AS p, sizes @> ARRAY[3] AS has FROM nets;
/* duckdb CREATE VIEW v AS
SELECT id, sizes[2] AS second, sizes[1:2] AS two, len(sizes) AS n, nullif(len(sizes), 0) AS l, list_append(sizes, 13) AS more,
       list_contains(sizes, 5) AS five, array_to_string(marks, '/') AS m, list_append(sizes, 1) AS p, list_contains(sizes, 3) AS has FROM nets; */

--- unnest of a column
CREATE TABLE nets (id int PRIMARY KEY, sizes int[]);
INSERT INTO nets VALUES (1, ARRAY[3, 5, 8]), (2, '{}');
/* duckdb INSERT INTO nets VALUES (1, [3, 5, 8]), (2, []); */
CREATE VIEW v AS SELECT n.id, u.size FROM nets n, unnest(n.sizes) AS u(size);

--- json with its operators
CREATE TABLE papers (id int PRIMARY KEY, doc jsonb);
/* duckdb CREATE TABLE papers (id int PRIMARY KEY, doc json); */
INSERT INTO papers VALUES (1, '{"port": "Bergen", "crew": {"n": 3}}');
/* duckdb INSERT INTO papers VALUES (1, '{"crew": {"n": 3}, "port": "Bergen"}'); */
CREATE VIEW v AS SELECT id, doc ->> 'port' AS port, (doc -> 'crew' ->> 'n')::int AS n FROM papers;

--- string_agg, array_agg with their order
CREATE VIEW v AS
SELECT harbour, string_agg(name, ', ' ORDER BY length DESC) AS names, array_agg(id ORDER BY id) AS ids FROM boats GROUP BY harbour;

--- bool_and, bool_or, every and count distinct
CREATE VIEW v AS
SELECT harbour, bool_and(motor) AS a, bool_or(motor) AS o, every(length > 7) AS e, count(DISTINCT motor) AS d FROM boats GROUP BY harbour;
/* duckdb CREATE VIEW v AS
SELECT harbour, bool_and(motor) AS a, bool_or(motor) AS o, bool_and(length > 7) AS e, count(DISTINCT motor) AS d FROM boats GROUP BY harbour; */

--- statistics: stddev, variance, corr and regr_slope
CREATE VIEW v AS
SELECT count(*) AS n, stddev_samp(fee) AS s, var_pop(fish) AS p, variance(fee) AS v, corr(fee, fish) AS c, regr_slope(fee, fish) AS r FROM trips;

--- percentiles and mode within a group
CREATE VIEW v AS
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY fee) AS median, percentile_disc(0.25) WITHIN GROUP (ORDER BY fish) AS q,
       mode() WITHIN GROUP (ORDER BY boat) AS m FROM trips WHERE boat = 3 OR id = 14;
/* duckdb CREATE VIEW v AS
SELECT quantile_cont(fee, 0.5) AS median, quantile_disc(fish, 0.25) AS q, 3 AS m FROM trips WHERE boat = 3 OR id = 14; */

--- INSERT of named columns, of defaults and of several rows
CREATE TABLE crew (id int PRIMARY KEY, name text DEFAULT 'nobody', joined date DEFAULT '2020-01-01', pay numeric DEFAULT 9.99);
INSERT INTO crew (id) VALUES (1);
INSERT INTO crew VALUES (2, DEFAULT, '2021-02-03'), (3, 'cy', DEFAULT);
/* duckdb INSERT INTO crew VALUES (2, DEFAULT, '2021-02-03', DEFAULT), (3, 'cy', DEFAULT, DEFAULT); */
INSERT INTO crew (name, id) VALUES ('dan', 4);
CREATE VIEW v AS SELECT * FROM crew;

--- INSERT of a query
CREATE TABLE old_trips (id bigint PRIMARY KEY, fee numeric(8, 2));
INSERT INTO old_trips SELECT id, fee * 2 FROM trips WHERE left_at < '2024-06-01';
CREATE VIEW v AS SELECT sum(fee) AS s FROM old_trips;

--- UPDATE of several columns by expressions
UPDATE trips SET fee = fee * 1.10, fish = fish + 1, note = upper(note) WHERE boat IN (1, 3) AND fee IS NOT NULL;
UPDATE boats SET (harbour, motor) = ('Kiel', NOT motor) WHERE length > 8;
/* duckdb UPDATE boats SET harbour = 'Kiel', motor = NOT motor WHERE length > 8; */
CREATE VIEW v AS SELECT id, fee, fish, note FROM trips;

--- UPDATE with a second table; refused: FROM
UPDATE trips SET note = b.name FROM boats b WHERE trips.boat = b.id;

--- INSERT with ON CONFLICT
INSERT INTO boats (id, name) VALUES (1, 'Alke II'), (7, 'Gamma') ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name;
INSERT INTO boats (id, name) VALUES (2, 'nobody') ON CONFLICT DO NOTHING;
CREATE VIEW v AS SELECT id, name FROM boats;

--- DELETE with RETURNING; refused: RETURNING
DELETE FROM trips WHERE fish = 0 RETURNING *;

--- constraints of a table: UNIQUE, CHECK and REFERENCES; refused: UNIQUE
CREATE TABLE berths (no int PRIMARY KEY, boat int UNIQUE REFERENCES boats (id), price numeric CHECK (price > 0));
/* duckdb CREATE TABLE berths (no int PRIMARY KEY, boat int, price numeric); */

--- a generated column
CREATE TABLE sails (id int PRIMARY KEY, w numeric(4, 1), h numeric(4, 1), area numeric(8, 2) GENERATED ALWAYS AS (w * h) STORED);
/* duckdb CREATE TABLE sails (id int PRIMARY KEY, w numeric(4, 1), h numeric(4, 1), area numeric(8, 2) GENERATED ALWAYS AS (w * h)); */
INSERT INTO sails (id, w, h) VALUES (1, 2.5, 4), (2, 3, NULL);
UPDATE sails SET h = 1.5 WHERE id = 2;
CREATE VIEW v AS SELECT area, id FROM sails WHERE area > 4;
