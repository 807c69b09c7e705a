-- The numbers are those of the Nexmark queries. A view holds the answer over all records read so far.

CREATE VIEW q2 AS SELECT auction, price FROM bid WHERE auction % 123 = 0;

-- Who sells in which places, of one category.
CREATE VIEW q3 AS
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- The bid that wins an auction: the highest within its time, of several the first.
CREATE VIEW q9 AS
SELECT id, category, seller, bidder, price, "dateTime"
FROM (
  SELECT a.id, a.category, a.seller, b.bidder, b.price, b."dateTime",
    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b."dateTime", b.bidder) AS place
  FROM auction a JOIN bid b ON a.id = b.auction AND b."dateTime" BETWEEN a."dateTime" AND a.expires
) AS placed
WHERE place = 1;

-- The mean of the winning prices of each category, over another view.
CREATE VIEW q4 AS SELECT category, AVG(price) AS mean, COUNT(*) AS auctions FROM q9 GROUP BY category;

-- Per 10 seconds, every 2 seconds, the auctions with most bids.
CREATE VIEW q5 AS
WITH counted AS (
  SELECT window_start, auction, COUNT(*) AS num
  FROM HOP(bid, "dateTime", INTERVAL '2' SECOND, INTERVAL '10' SECOND)
  GROUP BY window_start, auction
)
SELECT c.window_start, c.auction, c.num
FROM counted c JOIN (SELECT window_start, MAX(num) AS most FROM counted GROUP BY window_start) AS m
  ON c.window_start = m.window_start AND c.num = m.most;

-- The mean of the last ten winning prices of each seller.
CREATE VIEW q6 AS
SELECT id, seller, AVG(price) OVER (PARTITION BY seller ORDER BY "dateTime", id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS mean
FROM q9;

-- The highest bids of every 10 seconds.
CREATE VIEW q7 AS
SELECT b.auction, b.bidder, b.price, b.window_start
FROM TUMBLE(bid, "dateTime", INTERVAL '10' SECOND) AS b
JOIN (SELECT window_start, MAX(price) AS most FROM TUMBLE(bid, "dateTime", INTERVAL '10' SECOND) GROUP BY window_start) AS m
  ON b.window_start = m.window_start AND b.price = m.most;

-- Persons who opened an auction in the 10 seconds in which they joined.
CREATE VIEW q8 AS
SELECT DISTINCT p.id, p.name, p.window_start
FROM TUMBLE(person, "dateTime", INTERVAL '10' SECOND) AS p
JOIN TUMBLE(auction, "dateTime", INTERVAL '10' SECOND) AS a ON p.id = a.seller AND p.window_start = a.window_start;

-- Per day: bids of three ranges of price, and how many bidders and auctions.
CREATE VIEW q15 AS
SELECT CAST("dateTime" AS DATE) AS day, COUNT(*) AS bids,
  COUNT(*) FILTER (WHERE price < 10000) AS low,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle,
  COUNT(*) FILTER (WHERE price >= 1000000) AS high,
  COUNT(DISTINCT bidder) AS bidders, COUNT(DISTINCT auction) AS auctions
FROM bid GROUP BY CAST("dateTime" AS DATE);

-- Per auction and day: the range of prices.
CREATE VIEW q17 AS
SELECT auction, CAST("dateTime" AS DATE) AS day, COUNT(*) AS bids, MIN(price) AS least, MAX(price) AS most, SUM(price) AS total
FROM bid GROUP BY auction, CAST("dateTime" AS DATE);

-- The last bid of each bidder for each auction.
CREATE VIEW q18 AS
SELECT DISTINCT ON (bidder, auction) bidder, auction, price, channel, "dateTime"
FROM bid ORDER BY bidder, auction, "dateTime" DESC, price DESC;

-- The ten highest bids of each auction.
CREATE VIEW q19 AS
SELECT auction, bidder, price, place
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, "dateTime", bidder) AS place FROM bid) AS placed
WHERE place <= 10;

-- Bids for auctions of one category.
CREATE VIEW q20 AS
SELECT b.auction, b.bidder, b.price, a."itemName", a.seller
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10;

-- Auctions that nobody has bid for.
CREATE VIEW unsold AS SELECT id, seller FROM auction a WHERE NOT EXISTS (SELECT 1 FROM bid b WHERE b.auction = a.id);

-- Parts of the address of a page.
CREATE VIEW q22 AS
SELECT auction, bidder, SPLIT_PART(url, '/', 4) AS dir1, SPLIT_PART(url, '/', 5) AS dir2 FROM bid WHERE price > 1000000;
