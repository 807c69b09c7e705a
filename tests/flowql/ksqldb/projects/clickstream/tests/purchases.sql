--@test: only what was seen before it was bought counts
INSERT INTO CLICKS (VISITOR, URL, CLICKED) VALUES ('ann', 'http://shop.example/a', '2025-06-01T10:00:00.001Z');
INSERT INTO PURCHASES (VISITOR, TOTAL, ITEMS, ROWTIME) VALUES ('ann', 5.0, MAP('x' := 2, 'y' := 1), 1748772600001);
INSERT INTO CLICKS (VISITOR, URL, CLICKED) VALUES ('ann', 'http://shop.example/b', '2025-06-01T10:10:00.003Z');
ASSERT VALUES LED_TO (VISITOR, PATH, TOTAL, ITEMS) VALUES ('ann', '/a', 5.0, 3);
