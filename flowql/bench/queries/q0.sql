-- q0: pass every bid through, all fields. What reading, decoding, encoding and committing cost.
CREATE STREAM q0 WITH (KAFKA_TOPIC = '${output:-q0}') AS
SELECT auction AS "auction", bidder AS "bidder", price AS "price", channel AS "channel", url AS "url", "dateTime", extra AS "extra"
FROM bid
EMIT CHANGES;
