CREATE TABLE sink (
  window_start BIGINT, auction BIGINT, bidder BIGINT, price BIGINT
) WITH ('connector' = 'kafka', 'format' = 'json', ${SINK});
INSERT INTO sink
SELECT UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000, auction, bidder, price FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC, auction DESC, bidder DESC) AS place
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND))
) WHERE place <= 1;
