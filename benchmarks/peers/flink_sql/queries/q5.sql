CREATE TABLE sink (
  window_start BIGINT, auction BIGINT, num BIGINT
) WITH ('connector' = 'kafka', 'format' = 'json', ${SINK});
INSERT INTO sink
SELECT UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000, auction, num FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY num DESC, auction DESC) AS place FROM (
    SELECT window_start, window_end, auction, COUNT(*) AS num
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, auction)
) WHERE place <= 1;
