-- q7: the highest bid of every 10 seconds; of several that of the highest auction, then bidder.
CREATE TABLE q7 WITH (KAFKA_TOPIC = '${output:-q7}') AS
SELECT 1 AS site, WINDOWSTART AS "window_start",
  MAX(STRUCT(price := price, auction := auction, bidder := bidder))->auction AS "auction",
  MAX(STRUCT(price := price, auction := auction, bidder := bidder))->bidder AS "bidder",
  MAX(STRUCT(price := price, auction := auction, bidder := bidder))->price AS "price"
FROM bid
WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 10 SECONDS)
GROUP BY 1
EMIT CHANGES;
