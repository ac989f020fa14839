WITH a AS (INSERT INTO customers (id, name) VALUES (6001, 'a'), (6002, 'b') RETURNING id), b AS (INSERT INTO orders (customer_id, id, total) SELECT id, 6000, 5 FROM a RETURNING customer_id, id) INSERT INTO items (customer_id, order_id, line, quantity) SELECT customer_id, id, 1, 1 FROM b RETURNING *;
WITH a AS (UPDATE orders SET total = total + 1 WHERE status = 'new' RETURNING customer_id, total), b AS (SELECT customer_id, sum(total) AS s FROM a GROUP BY customer_id) UPDATE customers c SET credit = b.s FROM b WHERE b.customer_id = c.id RETURNING c.id, c.credit;
WITH a AS (DELETE FROM items WHERE quantity > 5 RETURNING *) SELECT count(*), sum(quantity) FROM a UNION ALL SELECT count(*), sum(quantity) FROM items;
WITH a AS (UPDATE customers SET city = 'x' WHERE vip RETURNING id) SELECT c.city, count(*) FROM customers c JOIN a USING (id) GROUP BY c.city;
WITH a AS (INSERT INTO audit (id, what) SELECT 3000 + id, name FROM customers WHERE vip RETURNING what), b AS (UPDATE countries SET population = 1 RETURNING code) SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b);
WITH a AS (DELETE FROM tickets RETURNING id, customer_id), b AS (DELETE FROM returns r USING a WHERE a.customer_id = r.customer_id RETURNING r.id) SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b);
WITH a AS MATERIALIZED (SELECT id FROM customers ORDER BY id LIMIT 5), b AS (UPDATE orders SET note = 'five' WHERE customer_id IN (SELECT id FROM a) RETURNING id) SELECT count(*) FROM b;
WITH a AS (UPDATE customers SET credit = credit * 2 WHERE id < 20 RETURNING id, credit), log AS (INSERT INTO audit (id, what, amount, customer_id) SELECT 4000 + id, 'double', credit, id FROM a) SELECT count(*), sum(credit) FROM a;
--@ error
WITH a AS (MERGE INTO returns r USING orders o ON r.customer_id = o.customer_id AND r.id = o.id WHEN MATCHED THEN DELETE) SELECT 1;
