CREATE TABLE sink (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` BIGINT, extra STRING
) WITH ('connector' = 'kafka', 'format' = 'json', ${SINK});
INSERT INTO sink
SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM bid;
