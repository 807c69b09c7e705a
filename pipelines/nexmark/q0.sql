-- q0: pass every bid through, all fields. What reading, decoding, encoding and committing cost.
CREATE STREAM q0 WITH (KAFKA_TOPIC = '${output:-q0}') AS
SELECT auction, bidder, price, channel, url, "dateTime", extra
FROM bid
EMIT CHANGES;
