-- The final tables and streams, recomputed by DuckDB from the records of the topics.
-- Rows reach a task in the order of the running maximum of their times; at equal ones tables go first.
CREATE TABLE payments AS
  SELECT partition, "offset", key AS card, CAST(value->>'ID' AS BIGINT) AS id, CAST(value->>'AMOUNT' AS DECIMAL(10, 2)) AS amount,
         value->'SPOT' AS spot, CAST(value->'SIGNS' AS VARCHAR[]) AS signs, CAST(value->>'PAID_AT' AS BIGINT) AS ts
  FROM topic('bank.payments');
CREATE TABLE cards AS
  SELECT partition, "offset", key AS card, "timestamp" AS ts, value IS NULL AS gone, value->>'CUSTOMER' AS customer,
         value->'LIMITS' AS limits, CAST(value->'LIMITS'->>'single' AS INT) AS single, value->'HOME' AS home
  FROM topic('bank.cards');
CREATE TABLE customers AS
  SELECT "offset", key AS customer, value IS NULL AS gone, value->>'NAME' AS name, value->>'TIER' AS tier FROM topic('bank.customers');

CREATE TABLE arrivals AS
  WITH runs AS (
    SELECT 0 AS is_stream, partition, "offset", max(ts) OVER (PARTITION BY partition ORDER BY "offset") AS runs_at FROM cards
    UNION ALL
    SELECT 1, partition, "offset", max(ts) OVER (PARTITION BY partition ORDER BY "offset") FROM payments
  )
  SELECT *, row_number() OVER (PARTITION BY partition ORDER BY runs_at, is_stream, "offset") AS seq FROM runs;

CREATE TABLE checked AS
  WITH versions AS (SELECT c.*, a.seq FROM cards c JOIN arrivals a ON a.is_stream = 0 AND (a.partition, a."offset") = (c.partition, c."offset")),
  arrived AS (SELECT p.*, a.seq FROM payments p JOIN arrivals a ON a.is_stream = 1 AND (a.partition, a."offset") = (p.partition, p."offset")),
  joined AS (
    SELECT p.*, v.gone IS FALSE AS known, v.customer, v.limits, v.single, v.home,
           radians(CAST(p.spot->>'LAT' AS DOUBLE)) AS lat1, radians(CAST(v.home->>'LAT' AS DOUBLE)) AS lat2,
           radians(CAST(v.home->>'LON' AS DOUBLE) - CAST(p.spot->>'LON' AS DOUBLE)) AS dlon
    FROM arrived p ASOF LEFT JOIN versions v ON v.card = p.card AND v.seq < p.seq
  )
  SELECT partition, seq, ts, card, id, amount,
         CASE WHEN known THEN customer END AS customer,
         upper(spot->>'COUNTRY') AS country,
         CASE WHEN known THEN CAST(round(2 * 6371 * asin(sqrt(
           pow(sin((lat2 - lat1) / 2), 2) + cos(lat1) * cos(lat2) * pow(sin(dlon / 2), 2)))) AS BIGINT) END AS km_from_home,
         limits IS NULL OR coalesce(amount > single, FALSE) AS over_limit,
         list_filter(signs, lambda s: s LIKE 'risk:%') AS risks,
         coalesce(list_sum(list_transform(signs, lambda s: CASE WHEN s LIKE 'risk:%' THEN 10 ELSE 1 END)), 0) AS score
  FROM joined;
CREATE VIEW want_CHECKED AS
  SELECT card AS CARD, id AS ID, amount AS AMOUNT, customer AS CUSTOMER, country AS COUNTRY, km_from_home AS KM_FROM_HOME, over_limit AS OVER_LIMIT,
         risks AS RISKS, score AS SCORE
  FROM checked;

CREATE VIEW want_VELOCITY AS
  WITH timed AS (SELECT *, max(ts) OVER (PARTITION BY partition ORDER BY seq) AS stream_time, ts // 300000 * 300000 AS w FROM checked),
  ends AS (SELECT partition, max(ts) AS reached FROM checked GROUP BY partition)
  SELECT card AS CARD, w AS WINDOWSTART, count(*) AS PAYMENTS, sum(amount) AS TOTAL, count(DISTINCT country) AS COUNTRIES
  FROM timed JOIN ends USING (partition)
  WHERE w + 360000 > stream_time
  GROUP BY card, w, reached HAVING count(*) > 3 AND w + 360000 <= reached;

CREATE VIEW want_LAST_SEEN AS
  SELECT card AS CARD, arg_max(country, seq) AS COUNTRY, arg_min(id, seq) AS FIRST_ID, list(id ORDER BY seq)[-2:] AS LAST_IDS, max(amount) AS MOST
  FROM checked GROUP BY card;

CREATE VIEW want_SETTLED AS
  WITH a AS (SELECT key AS auth, "timestamp" AS ts, value FROM topic('bank.authorisations')),
  s AS (SELECT key AS auth, "timestamp" AS ts, value FROM topic('bank.settlements')),
  ends AS (SELECT max(ts) AS reached FROM (SELECT ts FROM a UNION ALL SELECT ts FROM s))
  SELECT a.auth AS AUTH, a.value->>'CARD' AS CARD, CAST(s.value->>'AMOUNT' AS DECIMAL(10, 2)) AS FETCHED, s.value->>'BANK' AS BANK
  FROM a LEFT JOIN s ON s.auth = a.auth AND s.ts BETWEEN a.ts - 600000 AND a.ts + 600000, ends
  WHERE s.auth IS NOT NULL OR a.ts + 720000 < reached;

CREATE VIEW card_now AS
  SELECT * FROM cards QUALIFY row_number() OVER (PARTITION BY card ORDER BY "offset" DESC) = 1 AND NOT gone;
CREATE VIEW want_CARD_OWNERS AS
  SELECT card AS CARD, customer AS CUSTOMER, o.name AS NAME, o.tier AS TIER
  FROM card_now c JOIN (
    SELECT * FROM customers QUALIFY row_number() OVER (PARTITION BY customer ORDER BY "offset" DESC) = 1 AND NOT gone
  ) o USING (customer);
CREATE VIEW want_CARDS_PER_TIER AS
  SELECT TIER, count(*) AS CARDS FROM want_CARD_OWNERS WHERE TIER IS NOT NULL GROUP BY TIER;

CREATE VIEW which AS SELECT 'CARDS_PER_TIER', 'CARDS > 0';

CREATE VIEW want_ALERTS AS
  SELECT card AS CARD, id AS ID, 'over limit' AS WHY, 5 AS POINTS FROM checked WHERE over_limit
  UNION ALL SELECT card, id, array_to_string(risks, ' '), score FROM checked WHERE len(risks) > 0
  UNION ALL SELECT card, id, 'far from home', 3 FROM checked WHERE km_from_home > 2000 AND country <> 'US';
CREATE VIEW want_ALERT_POINTS AS
  SELECT CARD, sum(POINTS) AS POINTS, count(*) AS ALERTS FROM want_ALERTS GROUP BY CARD HAVING sum(POINTS) >= 20;
