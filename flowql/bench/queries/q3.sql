-- q3: who sells in which places, of one category. Both sides are kept for good, so it does not matter which comes first:
-- times of rows are from 1900 to 2200, which is less than 110,000 days.
CREATE STREAM q3 WITH (KAFKA_TOPIC = '${output:-q3}') AS
SELECT a.seller, p.name AS "name", p.city AS "city", p.state AS "state", a.id AS "id"
FROM auction a
JOIN person p WITHIN 110000 DAYS ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
EMIT CHANGES;
