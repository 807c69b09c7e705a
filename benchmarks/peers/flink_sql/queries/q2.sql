CREATE TABLE sink (
  auction BIGINT, price BIGINT
) WITH ('connector' = 'kafka', 'format' = 'json', ${SINK});
INSERT INTO sink
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;
