-- q8: who opened an auction in the same 10 seconds in which they joined.
CREATE TABLE q8 WITH (KAFKA_TOPIC = '${output:-q8}') AS
SELECT p.id AS person, AS_VALUE(p.id) AS "id", LATEST_BY_OFFSET(p.name) AS "name",
  WINDOWSTART AS "window_start", COUNT(*) AS "auctions"
FROM person p
JOIN auction a WITHIN 10 SECONDS GRACE PERIOD 10 SECONDS ON p.id = a.seller
WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 10 SECONDS)
WHERE p."dateTime" / 10000 = a."dateTime" / 10000
GROUP BY p.id
EMIT CHANGES;
