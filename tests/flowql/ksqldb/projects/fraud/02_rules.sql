SET 'auto.offset.reset' = 'earliest';

-- Every payment beside what is known of its card at that moment.
CREATE STREAM checked AS
  SELECT p.card AS card,
         p.id AS id,
         p.amount AS amount,
         c.customer AS customer,
         UCASE(p.spot->country) AS country,
         CAST(ROUND(GEO_DISTANCE(p.spot->lat, p.spot->lon, c.home->lat, c.home->lon, 'KM')) AS BIGINT) AS km_from_home,
         c.limits IS NULL OR p.amount > c.limits['single'] AS over_limit,
         FILTER(p.signs, s => s LIKE 'risk:%') AS risks,
         REDUCE(p.signs, 0, (n, s) => n + CASE WHEN s LIKE 'risk:%' THEN 10 ELSE 1 END) AS score
  FROM payments p
  LEFT JOIN cards c ON p.card = c.card
  EMIT CHANGES;

-- Cards that are used more than three times within five minutes; told once, when the window is closed.
CREATE TABLE velocity AS
  SELECT card,
         COUNT(*) AS payments,
         SUM(amount) AS total,
         COUNT_DISTINCT(country) AS countries
  FROM checked
  WINDOW TUMBLING (SIZE 5 MINUTES, GRACE PERIOD 1 MINUTE)
  GROUP BY card
  HAVING COUNT(*) > 3
  EMIT FINAL;

-- Where a card was first and last seen, by order of arrival.
CREATE TABLE last_seen AS
  SELECT card,
         LATEST_BY_OFFSET(country) AS country,
         EARLIEST_BY_OFFSET(id) AS first_id,
         LATEST_BY_OFFSET(id, 2) AS last_ids,
         MAX(amount) AS most
  FROM checked
  GROUP BY card;

-- Authorisations with their settlement, or without one when it has not come within ten minutes.
CREATE STREAM settled AS
  SELECT a.auth AS auth, a.card AS card, a.amount AS asked, s.amount AS fetched, s.bank AS bank
  FROM authorisations a
  LEFT JOIN settlements s WITHIN 10 MINUTES GRACE PERIOD 2 MINUTES ON a.auth = s.auth
  EMIT CHANGES;
