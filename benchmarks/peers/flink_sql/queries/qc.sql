CREATE TABLE sink (
  bidder BIGINT, bids BIGINT, total BIGINT, top BIGINT, PRIMARY KEY (bidder) NOT ENFORCED
) WITH ('connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json', ${SINK});
INSERT INTO sink
SELECT bidder, COUNT(*), SUM(price), MAX(price) FROM bid GROUP BY bidder;
