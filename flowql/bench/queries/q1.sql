-- q1: prices in euros.
CREATE STREAM q1 WITH (KAFKA_TOPIC = '${output:-q1}') AS
SELECT auction AS "auction", bidder AS "bidder", CAST(price AS DOUBLE) * 0.908E0 AS "price", "dateTime", extra AS "extra"
FROM bid
EMIT CHANGES;
