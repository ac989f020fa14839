--@ runs
EXPLAIN (COSTS OFF) SELECT c.id, count(*) FROM customers c JOIN events e ON e.customer_id = c.id GROUP BY c.id;
--@ runs
EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) SELECT status, sum(total) FROM orders GROUP BY status;
--@ runs
EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM orders ORDER BY id LIMIT 3;
--@ runs
EXPLAIN (VERBOSE, BUFFERS OFF) SELECT * FROM customer_totals;
--@ runs
EXPLAIN (ANALYZE) UPDATE orders SET note = 'e' WHERE total > 100;
--@ runs
EXPLAIN INSERT INTO audit (what) SELECT status FROM orders;
--@ runs
EXPLAIN (FORMAT JSON) DELETE FROM orders USING customers c WHERE c.referrer = orders.customer_id;
--@ runs
EXPLAIN MERGE INTO customers c USING orders o ON c.id = o.id WHEN MATCHED THEN DELETE;
--@ runs
EXPLAIN WITH a AS (DELETE FROM returns RETURNING *) SELECT count(*) FROM a;
--@ runs
EXPLAIN CREATE TABLE never AS SELECT * FROM orders;
