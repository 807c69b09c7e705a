-- The queries of Nexmark as RisingWave publishes them. A view holds the answer over all records read so far.
-- Where several rows would be equally right, more columns in ORDER BY decide, so that each engine gives the same rows.

-- Each bid as it is.
CREATE VIEW q0 AS SELECT auction, bidder, price, "dateTime" FROM bid;

-- Prices in euros.
CREATE VIEW q1 AS SELECT auction, bidder, 0.908 * price AS price, "dateTime" FROM bid;

-- The bids on some auctions.
CREATE VIEW q2 AS
SELECT auction, price FROM bid
WHERE auction = 1007 OR auction = 1020 OR auction = 2001 OR auction = 2019 OR auction = 2087;

-- Who sells in which places, of one category.
CREATE VIEW q3 AS
SELECT p.name, p.city, p.state, a.id
FROM auction AS a INNER JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA');

-- The mean of the winning prices of each category.
CREATE VIEW q4 AS
SELECT q.category, AVG(q.final) AS avg
FROM (
  SELECT MAX(b.price) AS final, a.category
  FROM auction a, bid b
  WHERE a.id = b.auction AND b."dateTime" BETWEEN a."dateTime" AND a.expires
  GROUP BY a.id, a.category
) q
GROUP BY q.category;

-- Per 10 seconds, every 2 seconds, the auctions with most bids.
CREATE VIEW q5 AS
SELECT auction_bids.auction, auction_bids.num
FROM (
  SELECT bid.auction, COUNT(*) AS num, window_start AS starttime
  FROM HOP(bid, "dateTime", INTERVAL '2' SECOND, INTERVAL '10' SECOND)
  GROUP BY window_start, bid.auction
) AS auction_bids
JOIN (
  SELECT MAX(count_bids.num) AS maxn, count_bids.starttime_c
  FROM (
    SELECT COUNT(*) AS num, window_start AS starttime_c
    FROM HOP(bid, "dateTime", INTERVAL '2' SECOND, INTERVAL '10' SECOND)
    GROUP BY bid.auction, window_start
  ) AS count_bids
  GROUP BY count_bids.starttime_c
) AS max_bids
ON auction_bids.starttime = max_bids.starttime_c AND auction_bids.num >= max_bids.maxn;

-- The mean of the last eleven winning prices of each seller. RisingWave has it under the name q6-group-top1.
CREATE VIEW q6 AS
SELECT q.seller, AVG(q.final) OVER (
  PARTITION BY q.seller ORDER BY q."dateTime", q.id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW
) AS avg
FROM (
  SELECT a.id, a.seller, b.price AS final, b."dateTime",
    ROW_NUMBER() OVER (PARTITION BY a.id, a.seller ORDER BY b.price DESC, b."dateTime", b.bidder) AS rank
  FROM auction AS a, bid AS b
  WHERE a.id = b.auction AND b."dateTime" BETWEEN a."dateTime" AND a.expires
) AS q
WHERE q.rank <= 1;

-- The highest bids of every 10 seconds.
CREATE VIEW q7 AS
SELECT b.auction, b.price, b.bidder, b."dateTime"
FROM bid b JOIN (
  SELECT MAX(price) AS maxprice, window_end AS closes
  FROM TUMBLE(bid, "dateTime", INTERVAL '10' SECOND)
  GROUP BY window_end
) b1 ON b.price = b1.maxprice
WHERE b."dateTime" BETWEEN b1.closes - INTERVAL '10' SECOND AND b1.closes;

-- Persons who opened an auction in the 10 seconds in which they joined.
CREATE VIEW q8 AS
SELECT p.id, p.name, p.starttime
FROM (
  SELECT id, name, window_start AS starttime, window_end AS endtime
  FROM TUMBLE(person, "dateTime", INTERVAL '10' SECOND)
  GROUP BY id, name, window_start, window_end
) p
JOIN (
  SELECT seller, window_start AS starttime, window_end AS endtime
  FROM TUMBLE(auction, "dateTime", INTERVAL '10' SECOND)
  GROUP BY seller, window_start, window_end
) a ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime;

-- The bid that wins an auction: the highest within its time, of several the first.
CREATE VIEW q9 AS
SELECT id, "itemName", description, "initialBid", reserve, "dateTime", expires, seller, category,
  auction, bidder, price, bid_time
FROM (
  SELECT a.*, b.auction, b.bidder, b.price, b."dateTime" AS bid_time,
    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b."dateTime" ASC, b.bidder) AS rownum
  FROM auction a, bid b
  WHERE a.id = b.auction AND b."dateTime" BETWEEN a."dateTime" AND a.expires
) tmp
WHERE rownum <= 1;

-- Each bid with the day and the minute, which other systems write to files by day and minute: here the rows are in the topic of the view.
CREATE VIEW q10 AS
SELECT auction, bidder, price, "dateTime", TO_CHAR("dateTime", 'YYYY-MM-DD') AS date, TO_CHAR("dateTime", 'HH:MI') AS time
FROM bid;

-- Bids of each bidder between pauses of more than 10 seconds. RisingWave has no q11.
CREATE VIEW q11 AS
SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR("dateTime"), INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end;

-- Bids of each bidder per 10 seconds. By RisingWave they are 10 seconds of the time of processing, which FlowQL refuses: here those of the event.
CREATE VIEW q12 AS
SELECT bidder, COUNT(*) AS bid_count, window_start, window_end
FROM TUMBLE(bid, "dateTime", INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end;

-- Bids with the values of a table. RisingWave joins each bid with the table as it is when the bid comes (FOR SYSTEM_TIME AS OF PROCTIME(), which
-- FlowQL has, too): an answer that depends on what was read first. Here it is the table as it is.
CREATE VIEW q13 AS
SELECT b.auction, b.bidder, b.price, b."dateTime", s.value
FROM bid b JOIN side_input s ON MOD(b.auction, 10) = s.key;

-- Bids within a range of prices, by the part of the day. RisingWave counts the letters by a function of SQL.
CREATE VIEW q14 AS
SELECT auction, bidder, 0.908 * price AS price,
  CASE
    WHEN EXTRACT(HOUR FROM "dateTime") >= 8 AND EXTRACT(HOUR FROM "dateTime") <= 18 THEN 'dayTime'
    WHEN EXTRACT(HOUR FROM "dateTime") <= 6 OR EXTRACT(HOUR FROM "dateTime") >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END AS bidtimetype,
  "dateTime", LENGTH(extra) - LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- Per day: bids, bidders and auctions, of three ranges of price.
CREATE VIEW q15 AS
SELECT TO_CHAR("dateTime", 'YYYY-MM-DD') AS "day",
  COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  COUNT(DISTINCT bidder) AS total_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  COUNT(DISTINCT auction) AS total_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY TO_CHAR("dateTime", 'YYYY-MM-DD');

-- The same per channel and day, with the last minute.
CREATE VIEW q16 AS
SELECT channel, TO_CHAR("dateTime", 'YYYY-MM-DD') AS "day", MAX(TO_CHAR("dateTime", 'HH24:MI')) AS "minute",
  COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  COUNT(DISTINCT bidder) AS total_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  COUNT(DISTINCT auction) AS total_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY channel, TO_CHAR("dateTime", 'YYYY-MM-DD');

-- Per auction and day: bids of three ranges of price, and the prices.
CREATE VIEW q17 AS
SELECT auction, TO_CHAR("dateTime", 'YYYY-MM-DD') AS "day",
  COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
FROM bid
GROUP BY auction, TO_CHAR("dateTime", 'YYYY-MM-DD');

-- The last bid of each bidder for each auction.
CREATE VIEW q18 AS
SELECT auction, bidder, price, channel, url, "dateTime"
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY "dateTime" DESC, price DESC) AS rank_number FROM bid
) AS numbered
WHERE rank_number <= 1;

-- The ten highest bids of each auction.
CREATE VIEW q19 AS
SELECT *
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, "dateTime", bidder) AS rank_number FROM bid
) AS numbered
WHERE rank_number <= 10;

-- Bids with their auctions, of one category.
CREATE VIEW q20 AS
SELECT auction, bidder, price, channel, url, b."dateTime" AS bid_time, b.extra AS bid_extra,
  "itemName", description, "initialBid", reserve, a."dateTime" AS auction_time, expires, seller, category, a.extra AS auction_extra
FROM bid AS b INNER JOIN auction AS a ON b.auction = a.id
WHERE a.category = 10;

-- The number of a channel, by its name or out of the address of the page.
CREATE VIEW q21 AS
SELECT auction, bidder, price, channel,
  CASE
    WHEN LOWER(channel) = 'apple' THEN '0'
    WHEN LOWER(channel) = 'google' THEN '1'
    WHEN LOWER(channel) = 'facebook' THEN '2'
    WHEN LOWER(channel) = 'baidu' THEN '3'
    ELSE (REGEXP_MATCH(url, '(&|^)channel_id=([^&]*)'))[2]
  END AS channel_id
FROM bid
WHERE (REGEXP_MATCH(url, '(&|^)channel_id=([^&]*)'))[2] IS NOT NULL OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu');

-- Parts of the address of a page.
CREATE VIEW q22 AS
SELECT auction, bidder, price, channel,
  SPLIT_PART(url, '/', 4) AS dir1, SPLIT_PART(url, '/', 5) AS dir2, SPLIT_PART(url, '/', 6) AS dir3
FROM bid;

-- Two that Nexmark has not: a view over a view, and auctions without bids.
CREATE VIEW won AS SELECT category, COUNT(*) AS auctions, MAX(price) AS highest FROM q9 GROUP BY category;

CREATE VIEW unsold AS SELECT id, seller FROM auction a WHERE NOT EXISTS (SELECT 1 FROM bid b WHERE b.auction = a.id);
