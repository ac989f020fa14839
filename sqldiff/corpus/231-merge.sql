MERGE INTO customers c USING orders o ON c.id = o.id WHEN MATCHED AND o.status = 'lost' THEN DELETE WHEN MATCHED THEN UPDATE SET city = o.status, credit = coalesce(o.total, 0) WHEN NOT MATCHED AND o.id < 100 THEN INSERT (id, name) VALUES (o.id, 'order ' || o.id) WHEN NOT MATCHED THEN DO NOTHING;
MERGE INTO orders o USING (SELECT customer_id, max(seq) AS s FROM events WHERE customer_id IS NOT NULL GROUP BY customer_id) e ON o.customer_id = e.customer_id AND o.id = e.s WHEN NOT MATCHED THEN INSERT (customer_id, id, note) VALUES (e.customer_id, e.s + 700, 'event') WHEN MATCHED THEN UPDATE SET note = 'seen';
MERGE INTO countries k USING (SELECT country, count(*) AS n FROM customers GROUP BY country) c ON k.code = c.country WHEN MATCHED THEN UPDATE SET population = c.n WHEN NOT MATCHED AND c.country IS NOT NULL THEN INSERT VALUES (c.country, 'new', NULL, c.n);
MERGE INTO staff s USING customers c ON s.name = c.name AND s.id = c.id WHEN MATCHED THEN UPDATE SET salary = c.credit WHEN NOT MATCHED AND c.vip THEN INSERT (dept, id, name) VALUES ('ops', 500 + c.id, c.name);
MERGE INTO audit a USING (SELECT sum(total) AS t FROM orders) o ON a.amount > o.t WHEN NOT MATCHED THEN INSERT (what, amount) VALUES ('total', o.t);
MERGE INTO returns r USING (VALUES (2, 1, 'a'), (5, 2, 'b'), (8, 3, NULL)) AS v (c, i, reason) ON r.customer_id = v.c AND r.id = v.i WHEN MATCHED AND v.reason IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET reason = v.reason WHEN NOT MATCHED THEN INSERT (customer_id, id, reason) VALUES (v.c, v.i, coalesce(v.reason, 'none'));
MERGE INTO tickets t USING customers c ON t.customer_id = c.id WHEN MATCHED AND t.open THEN UPDATE SET open = false, subject = subject || c.name WHEN NOT MATCHED AND c.vip THEN INSERT (id, subject, customer_id) VALUES (3000 + c.id, c.name, c.id);
MERGE INTO products p USING items i ON p.id = i.product_id AND false WHEN MATCHED THEN DELETE;
WITH big AS (SELECT customer_id, sum(total) AS t FROM orders GROUP BY 1 HAVING sum(total) > 300) MERGE INTO customers c USING big ON big.customer_id = c.id WHEN MATCHED THEN UPDATE SET vip = true, credit = c.credit + big.t WHEN NOT MATCHED THEN INSERT (id, name, vip) VALUES (big.customer_id, 'late', true);
--@ error
MERGE INTO customers c USING orders o ON c.id = o.customer_id WHEN MATCHED THEN UPDATE SET city = o.status;
--@ error
MERGE INTO customers c USING (VALUES (1, NULL)) AS v (id, name) ON c.id = v.id + 90000 WHEN NOT MATCHED THEN INSERT (id, name) VALUES (v.id + 90000, v.name);
