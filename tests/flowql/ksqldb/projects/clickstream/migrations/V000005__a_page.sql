INSERT INTO pages (ROWTIME, path, title, section) VALUES (1749990000001, '/about', 'About us', 'company');
