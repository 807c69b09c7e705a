-- q2: the bids on some auctions.
CREATE STREAM q2 WITH (KAFKA_TOPIC = '${output:-q2}') AS
SELECT auction AS "auction", price AS "price"
FROM bid
WHERE auction % 123 = 0
EMIT CHANGES;
