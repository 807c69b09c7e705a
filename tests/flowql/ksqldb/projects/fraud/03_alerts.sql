SET 'auto.offset.reset' = 'earliest';

-- Whose card is it? A foreign-key join: cards name their customer.
CREATE TABLE card_owners AS
  SELECT c.card AS card, c.customer AS customer, o.name AS name, o.tier AS tier
  FROM cards c
  JOIN customers o ON c.customer = o.customer;

CREATE TABLE cards_per_tier AS
  SELECT tier, COUNT(*) AS cards FROM card_owners GROUP BY tier;

SET 'ksql.streams.commit.interval.ms' = '100';

CREATE STREAM alerts (card STRING KEY, id BIGINT, why STRING, points INT)
  WITH (kafka_topic='bank.alerts', partitions=3, value_format='JSON');
INSERT INTO alerts SELECT card, id, 'over limit' AS why, 5 AS points FROM checked WHERE over_limit;
INSERT INTO alerts SELECT card, id, ARRAY_JOIN(risks, ' ') AS why, score AS points FROM checked WHERE ARRAY_LENGTH(risks) > 0;
INSERT INTO alerts
  SELECT card, id, 'far from home' AS why, 3 AS points FROM checked WHERE km_from_home > 2000 AND country <> 'US';

CREATE TABLE alert_points AS
  SELECT card, SUM(points) AS points, COUNT(*) AS alerts FROM alerts GROUP BY card HAVING SUM(points) >= 20;

SHOW QUERIES;
