--@ runs
EXPLAIN SELECT * FROM customers;
--@ runs
EXPLAIN SELECT * FROM customers WHERE id = 2;
--@ runs
EXPLAIN (COSTS OFF) SELECT count(*) FROM orders;
--@ runs
EXPLAIN (ANALYZE) SELECT status, count(*) FROM orders GROUP BY status;
--@ runs
EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) SELECT * FROM customers c JOIN events e ON e.customer_id = c.id;
--@ runs
EXPLAIN (FORMAT JSON) SELECT * FROM customers ORDER BY name LIMIT 5;
--@ runs
EXPLAIN (ANALYZE, FORMAT JSON) SELECT sum(total) FROM orders;
--@ runs
EXPLAIN (VERBOSE) SELECT * FROM orders o LEFT JOIN customers c ON c.id = o.customer_id;
--@ runs
EXPLAIN WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT * FROM n JOIN orders ON id = i;
--@ runs
EXPLAIN INSERT INTO returns SELECT customer_id, id, 'x', 1 FROM orders;
--@ runs
EXPLAIN UPDATE orders SET total = 0 WHERE status = 'lost';
--@ runs
EXPLAIN DELETE FROM orders WHERE status = 'lost';
--@ runs
EXPLAIN INSERT INTO countries VALUES ('zz', 'Zed');
--@ runs
EXPLAIN SELECT * FROM countries JOIN staff ON true;
--@ runs
EXPLAIN (ANALYZE) UPDATE orders SET note = 'seen' WHERE customer_id = 2;
--@ runs
EXPLAIN SELECT id FROM orders FOR UPDATE;
--@ runs
EXPLAIN CREATE TABLE made AS SELECT count(*) FROM orders;
--@ runs
EXPLAIN (FORMAT YAML) SELECT 1;
--@ error
EXPLAIN SELECT * FROM nothing;
-- With ANALYZE writes are done.
--@ runs
EXPLAIN (ANALYZE) UPDATE orders SET note = 'seen';
--@ runs
EXPLAIN (ANALYZE, FORMAT JSON) DELETE FROM tickets t USING customers c WHERE c.id = t.customer_id;
--@ runs
EXPLAIN (ANALYZE) INSERT INTO orders (customer_id, id) VALUES (2, 9000), (5, 9001), (8, 9002);
--@ runs
EXPLAIN (ANALYZE) INSERT INTO returns SELECT customer_id, id, 'x', 1 FROM orders;
--@ runs
EXPLAIN (ANALYZE) INSERT INTO countries VALUES ('zz', 'Zed');
--@ runs
EXPLAIN (ANALYZE) UPDATE countries SET population = (SELECT count(*) FROM customers);
--@ runs
EXPLAIN (ANALYZE) MERGE INTO tickets t USING customers c ON c.id = t.customer_id WHEN MATCHED THEN UPDATE SET subject = c.name;
--@ runs
EXPLAIN (ANALYZE) WITH d AS (DELETE FROM orders WHERE status = 'lost' RETURNING *) INSERT INTO audit (what, customer_id) SELECT 'lost', customer_id FROM d ORDER BY customer_id;
--@ runs
EXPLAIN WITH d AS (DELETE FROM orders WHERE status = 'lost' RETURNING *) SELECT count(*) FROM d;
--@ runs
EXPLAIN INSERT INTO tickets (subject) VALUES ('a'), ('b');
--@ runs
EXPLAIN UPDATE countries SET population = 0 WHERE code = 'de';
