-- q5: per 10 seconds, every 2 seconds, the auction with most bids; of several the one with the highest number.
-- A window's counts are final when it closes, each given once.
CREATE TABLE q5_counts WITH (KAFKA_TOPIC = '${app_id:-nexmark}-q5-counts', KEY_FORMAT = 'KAFKA') AS
SELECT auction, COUNT(*) AS num
FROM bid
WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 2 SECONDS, GRACE PERIOD 0 SECONDS)
GROUP BY auction
EMIT FINAL;

CREATE STREAM q5_closed (auction BIGINT KEY, num BIGINT)
WITH (KAFKA_TOPIC = '${app_id:-nexmark}-q5-counts', VALUE_FORMAT = 'JSON', WINDOW_TYPE = 'HOPPING', WINDOW_SIZE = '10 SECONDS');

CREATE TABLE q5 WITH (KAFKA_TOPIC = '${output:-q5}') AS
SELECT WINDOWSTART AS opens, AS_VALUE(WINDOWSTART) AS "window_start",
  MAX(STRUCT(num := num, auction := auction))->auction AS "auction",
  MAX(STRUCT(num := num, auction := auction))->num AS "num"
FROM q5_closed
GROUP BY WINDOWSTART
EMIT CHANGES;
