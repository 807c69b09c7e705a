-- q2: the bids on some auctions.
CREATE STREAM q2 WITH (KAFKA_TOPIC = '${output:-q2}') AS
SELECT auction, price
FROM bid
WHERE auction % 123 = 0
EMIT CHANGES;
