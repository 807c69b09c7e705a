-- q3: who sells in which places, of one category. Both sides are kept for good, so it does not matter which comes first.
CREATE STREAM q3 WITH (KAFKA_TOPIC = '${output:-q3}') AS
SELECT a.seller, p.name AS name, p.city AS city, p.state AS state, a.id AS id
FROM auction a
JOIN person p WITHIN 36500 DAYS ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
EMIT CHANGES;
