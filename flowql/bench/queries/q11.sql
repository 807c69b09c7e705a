-- q11: how many bids each bidder makes before a pause of more than 10 seconds.
CREATE TABLE q11 WITH (KAFKA_TOPIC = '${output:-q11}') AS
SELECT bidder AS who, AS_VALUE(bidder) AS "bidder", COUNT(*) AS "bid_count",
  WINDOWSTART AS "starttime", WINDOWEND + 10000 AS "endtime"
FROM bid
WINDOW SESSION (10 SECONDS, GRACE PERIOD 10 SECONDS)
GROUP BY bidder
EMIT CHANGES;
