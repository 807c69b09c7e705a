-- qc: per bidder, how many bids, how much in all, the highest. A keyed aggregation behind a repartition.
CREATE TABLE qc WITH (KAFKA_TOPIC = '${output:-qc}') AS
SELECT bidder AS who, AS_VALUE(bidder) AS "bidder", COUNT(*) AS "bids", SUM(price) AS "total", MAX(price) AS "top"
FROM bid
GROUP BY bidder
EMIT CHANGES;
