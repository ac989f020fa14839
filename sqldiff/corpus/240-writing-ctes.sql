WITH d AS (DELETE FROM orders WHERE status = 'lost' RETURNING *) SELECT count(*), sum(total) FROM d;
WITH d AS (DELETE FROM orders WHERE customer_id = 2 RETURNING *) SELECT id FROM d ORDER BY id;
WITH d AS (DELETE FROM orders WHERE status = 'lost' RETURNING customer_id, id, note, total) INSERT INTO returns SELECT * FROM d;
WITH d AS (DELETE FROM orders WHERE status = 'lost' RETURNING customer_id, id) INSERT INTO audit (what, customer_id) SELECT 'lost', customer_id FROM d ORDER BY id;
WITH u AS (UPDATE customers SET credit = 0 WHERE credit < 0 RETURNING id) SELECT o.id FROM orders o JOIN u ON u.id = o.customer_id;
WITH u AS (UPDATE orders SET total = total * 2 WHERE status = 'paid' RETURNING customer_id, total) UPDATE customers c SET credit = q.s FROM (SELECT customer_id, sum(total) AS s FROM u GROUP BY customer_id) q WHERE q.customer_id = c.id;
WITH i AS (INSERT INTO customers (id, name) VALUES (500, 'n'), (501, 'm') RETURNING id) INSERT INTO orders (customer_id, id) SELECT id, 1 FROM i;
WITH i AS (INSERT INTO customers (id, name) VALUES (500, 'n') RETURNING id) SELECT (SELECT count(*) FROM customers), (SELECT count(*) FROM i);
WITH a AS (DELETE FROM tickets WHERE open RETURNING id), b AS (UPDATE events SET value = 0 WHERE kind = 'error' RETURNING seq) SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b);
WITH a AS (INSERT INTO returns SELECT customer_id, id, 'r', 1 FROM orders RETURNING customer_id) SELECT customer_id, count(*) FROM a GROUP BY customer_id;
WITH moved AS (DELETE FROM events WHERE device = 'dev-01' RETURNING *) INSERT INTO events SELECT 'dev-new', kind, seq, customer_id, at, value, payload FROM moved;
WITH x AS (UPDATE countries SET population = 0 RETURNING code) SELECT c.id FROM customers c JOIN x ON x.code = c.country;
WITH x AS (SELECT id FROM customers WHERE vip) DELETE FROM orders o USING x WHERE x.id = o.customer_id RETURNING o.id;
WITH x AS (SELECT customer_id, max(id) AS m FROM orders GROUP BY 1) UPDATE orders o SET note = 'last' FROM x WHERE o.customer_id = x.customer_id AND o.id = x.m;
WITH x AS (INSERT INTO audit (what) VALUES ('a') RETURNING id) SELECT id FROM x;
WITH x AS (DELETE FROM orders RETURNING 1) SELECT count(*) FROM orders;
WITH RECURSIVE t AS (SELECT 2::bigint AS id UNION SELECT c.referrer FROM customers c JOIN t ON t.id = c.id WHERE c.referrer IS NOT NULL) UPDATE customers SET vip = true WHERE id IN (SELECT id FROM t);
-- Parts that read what others change see it as it was before.
WITH d AS (DELETE FROM orders WHERE status = 'lost' RETURNING id) SELECT (SELECT count(*) FROM d), (SELECT count(*) FROM orders), (SELECT max(id) FROM orders WHERE status = 'lost');
WITH u AS (UPDATE customers SET credit = 1 RETURNING id) SELECT u.id, c.credit FROM u JOIN customers c ON c.id = u.id;
WITH u AS (UPDATE customers SET credit = 1 RETURNING id), before AS (SELECT id, credit FROM customers) SELECT u.id, b.credit FROM u JOIN before b ON b.id = u.id;
WITH i AS (INSERT INTO tickets (id, subject) VALUES (9001, 'a'), (9002, 'b'), (9003, 'c') RETURNING id) SELECT i.id FROM i LEFT JOIN tickets t ON t.id = i.id WHERE t.id IS NULL;
WITH d AS (DELETE FROM customers WHERE id > 40 RETURNING *) INSERT INTO audit (what, customer_id) SELECT d.name, d.id FROM d WHERE EXISTS (SELECT FROM customers c WHERE c.id = d.id) ORDER BY d.id;
WITH u AS (UPDATE orders SET total = 0 WHERE total > 300 RETURNING customer_id, id) SELECT sum(v.total) FROM big_orders v;
WITH u AS (UPDATE countries SET population = 5 RETURNING code) SELECT sum(k.population) FROM countries k JOIN u ON u.code = k.code;
WITH u AS (DELETE FROM audit RETURNING id) SELECT (SELECT count(*) FROM audit), (SELECT count(*) FROM u), (SELECT count(*) FROM orders);
-- Reading items: used once, by several parts, by none.
WITH lost AS (SELECT customer_id, id FROM orders WHERE status = 'lost'), d AS (DELETE FROM orders o USING lost l WHERE o.customer_id = l.customer_id AND o.id = l.id RETURNING o.id) SELECT count(*), max(id) FROM d;
WITH lost AS (SELECT customer_id, id FROM orders WHERE status = 'lost'), d AS (DELETE FROM orders o USING lost l WHERE o.customer_id = l.customer_id AND o.id = l.id RETURNING o.id) SELECT l.id FROM lost l LEFT JOIN d ON d.id = l.id;
WITH r AS (SELECT id FROM customers ORDER BY id LIMIT 3), d AS (DELETE FROM orders WHERE customer_id IN (SELECT id FROM r) RETURNING customer_id), u AS (UPDATE customers SET vip = true WHERE id IN (SELECT id FROM r) RETURNING id) SELECT (SELECT count(*) FROM d), (SELECT array_agg(id ORDER BY id) FROM u);
WITH nobody AS (SELECT count(*) FROM events), d AS (DELETE FROM tickets WHERE open RETURNING id, subject) SELECT subject, count(*) FROM d GROUP BY subject ORDER BY subject;
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 5), d AS (DELETE FROM orders WHERE id IN (SELECT i FROM n) RETURNING id) SELECT count(*) FROM d;
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 5), d AS (DELETE FROM orders WHERE id IN (SELECT i FROM n) RETURNING id) SELECT n.i, count(d.id) FROM n LEFT JOIN d ON d.id = n.i GROUP BY n.i;
WITH a AS (DELETE FROM returns RETURNING customer_id), b AS (SELECT customer_id, count(*) AS n FROM a GROUP BY customer_id), c AS (UPDATE customers SET referrer = b.n FROM b WHERE b.customer_id = customers.id RETURNING id, referrer) SELECT * FROM c;
-- Names and types of what is returned.
WITH d(a, b) AS (DELETE FROM orders WHERE status = 'lost' RETURNING id, note, total) SELECT a, b, total FROM d;
WITH d AS (DELETE FROM orders WHERE status = 'lost' RETURNING id AS x, upper(note), total * 2, placed_at, status || '!' AS s) SELECT x, upper, s, placed_at IS NULL FROM d;
WITH d AS (DELETE FROM customers RETURNING tags, profile, joined, vip, credit) SELECT count(*), bool_or(vip), max(joined), sum(credit), count(tags[1]), max(profile->>'level') FROM d;
WITH d AS (DELETE FROM accounts RETURNING *) SELECT kind, code, flags, balance, id FROM d;
WITH u AS (UPDATE customers SET name = upper(name) RETURNING name) SELECT max(name), min(name), count(DISTINCT name) FROM u;
WITH d AS (DELETE FROM orders o USING customers c WHERE c.id = o.customer_id AND c.vip RETURNING o.id, c.name, c.credit) SELECT name, sum(credit), count(*) FROM d GROUP BY name;
WITH d AS (DELETE FROM orders WHERE false RETURNING *) SELECT count(*), sum(total), max(note) FROM d;
WITH d AS (DELETE FROM orders WHERE false RETURNING *) SELECT * FROM d;
-- Writes that nobody reads, and writes to several kinds of tables.
WITH d AS (DELETE FROM orders WHERE status = 'lost') SELECT count(*) FROM customers;
WITH d AS (DELETE FROM tickets WHERE open), e AS (DELETE FROM events WHERE kind = 'error') UPDATE customers SET vip = false;
WITH d AS (UPDATE audit SET amount = 0 RETURNING customer_id) UPDATE customers c SET referrer = 1 FROM d WHERE d.customer_id = c.id;
WITH d AS (UPDATE products SET price = 1 RETURNING id) DELETE FROM items i USING d WHERE d.id = i.product_id;
WITH m AS (DELETE FROM returns RETURNING *) INSERT INTO orders (customer_id, id, note) SELECT customer_id, id + 50000, reason FROM m ON CONFLICT DO NOTHING RETURNING customer_id;
WITH i AS (INSERT INTO countries VALUES ('y1', 'Y'), ('y2', 'Z') RETURNING code, name) INSERT INTO customers (id, name, country) SELECT 700 + row_number() OVER (ORDER BY code), name, code FROM i RETURNING id, country;
WITH i AS (INSERT INTO audit (what, customer_id) SELECT 'o', customer_id FROM orders ORDER BY customer_id RETURNING what, customer_id) UPDATE customers SET name = i.what FROM i WHERE i.customer_id = customers.id RETURNING customers.id, customers.name;
WITH d AS (DELETE FROM tickets RETURNING id, customer_id) MERGE INTO returns r USING d ON r.customer_id = d.customer_id AND r.id = d.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND d.customer_id IS NOT NULL THEN INSERT (customer_id, id) VALUES (d.customer_id, d.id);
WITH a AS (INSERT INTO orders (customer_id, id) VALUES (2, 9100), (5, 9101) RETURNING *), b AS (INSERT INTO orders (customer_id, id) VALUES (8, 9102) RETURNING *) SELECT customer_id, id, status FROM a UNION ALL SELECT customer_id, id, status FROM b;
WITH d AS (DELETE FROM events RETURNING device, kind, seq, customer_id) INSERT INTO events (device, kind, seq, customer_id) SELECT device, kind, seq + 100000, customer_id FROM d;
WITH d AS (DELETE FROM orders WHERE customer_id = 2 RETURNING customer_id, id) UPDATE customers SET credit = 5 WHERE id IN (SELECT customer_id FROM d);
--@ error
WITH d AS (DELETE FROM tickets RETURNING id) INSERT INTO customers (id, name) SELECT id, NULL FROM d;
--@ error
WITH i AS (INSERT INTO customers (id, name) VALUES (2, 'again') RETURNING id) SELECT count(*) FROM i, orders;
