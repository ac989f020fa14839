MERGE INTO customers c USING (VALUES (2, 'two'), (500, 'new')) v(id, name) ON c.id = v.id WHEN MATCHED THEN UPDATE SET name = v.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (v.id, v.name);
MERGE INTO orders o USING items i ON i.customer_id = o.customer_id AND i.order_id = o.id AND i.line = 1 WHEN MATCHED AND i.quantity > 5 THEN UPDATE SET note = 'bulk' WHEN MATCHED THEN DO NOTHING;
MERGE INTO orders o USING returns r ON r.customer_id = o.customer_id AND r.id = o.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (customer_id, id) VALUES (r.customer_id, r.id);
MERGE INTO orders o USING customers c ON c.id = o.customer_id AND o.id < 40 WHEN MATCHED AND c.vip THEN DELETE WHEN MATCHED THEN UPDATE SET note = c.name;
MERGE INTO customers c USING (SELECT customer_id, sum(total) AS s FROM orders GROUP BY customer_id) q ON q.customer_id = c.id WHEN MATCHED THEN UPDATE SET credit = q.s WHEN NOT MATCHED THEN INSERT (id, name, credit) VALUES (q.customer_id, 'made', q.s);
MERGE INTO customers c USING (SELECT DISTINCT customer_id FROM events WHERE customer_id IS NOT NULL) e ON e.customer_id = c.id WHEN MATCHED THEN UPDATE SET vip = true WHEN NOT MATCHED THEN INSERT (id, name) VALUES (e.customer_id, 'event');
MERGE INTO returns r USING orders o ON r.customer_id = o.customer_id AND r.id = o.id WHEN NOT MATCHED AND o.status = 'lost' THEN INSERT VALUES (o.customer_id, o.id, 'lost', o.total);
MERGE INTO returns r USING audit a ON r.id = a.id WHEN NOT MATCHED THEN INSERT (customer_id, id) VALUES (coalesce(a.customer_id, 0), a.id);
MERGE INTO tickets t USING (SELECT id FROM customers) c ON c.id = t.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, subject) VALUES (c.id + 10000, 'made');
MERGE INTO orders o USING (SELECT 2 AS c, 1 AS i) v ON o.customer_id = v.c AND o.id = v.i WHEN MATCHED THEN UPDATE SET total = 1 WHEN NOT MATCHED THEN INSERT (customer_id, id) VALUES (v.c, v.i);
MERGE INTO countries k USING (VALUES ('de', 1), ('zz', 2)) v(code, n) ON v.code = k.code WHEN MATCHED THEN UPDATE SET population = v.n WHEN NOT MATCHED THEN INSERT (code, name) VALUES (v.code, 'new');
MERGE INTO countries k USING (SELECT country, count(*) AS n FROM customers GROUP BY country) c ON c.country = k.code WHEN MATCHED THEN UPDATE SET population = c.n;
MERGE INTO products p USING (SELECT product_id, sum(quantity) AS q FROM items WHERE product_id IS NOT NULL GROUP BY 1) s ON s.product_id = p.id WHEN MATCHED AND s.q > 30 THEN UPDATE SET name = 'hit' WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.product_id, 'unknown');
MERGE INTO staff s USING customers c ON c.name = s.name AND c.id < 0 WHEN MATCHED THEN UPDATE SET salary = 1;
MERGE INTO audit a USING (SELECT customer_id, max(total) AS m FROM orders GROUP BY 1) o ON o.customer_id = a.customer_id WHEN MATCHED THEN UPDATE SET amount = o.m WHEN NOT MATCHED AND o.m > 390 THEN INSERT (id, what, amount) VALUES (o.customer_id + 5000, 'max', o.m);
--@ error
MERGE INTO customers c USING (VALUES (2), (2)) v(id) ON c.id = v.id WHEN MATCHED THEN UPDATE SET name = 'twice';
-- Not joined by the key: what is to be done is decided before it is done.
MERGE INTO orders o USING (VALUES ('lost', 'gone'), ('paid', 'done')) v(status, note) ON v.status = o.status WHEN MATCHED THEN UPDATE SET note = v.note;
MERGE INTO customers c USING (SELECT city, count(*) AS n FROM customers GROUP BY city) q ON q.city = c.city WHEN MATCHED AND q.n > 3 THEN DELETE WHEN MATCHED THEN UPDATE SET referrer = q.n;
MERGE INTO tickets t USING (SELECT id, name FROM customers WHERE id = 5) c ON c.id = t.customer_id + 100000 WHEN NOT MATCHED THEN INSERT (subject, customer_id) VALUES (c.name, c.id + 100000);
MERGE INTO events e USING products p ON p.id = e.seq AND e.kind = 'click' WHEN MATCHED AND p.price > 50 THEN DO NOTHING WHEN MATCHED THEN UPDATE SET value = p.price::float8 WHEN NOT MATCHED THEN INSERT (device, kind, seq) VALUES ('new', 'click', p.id + 90000);
MERGE INTO countries k USING (SELECT DISTINCT country FROM customers) c ON c.country = k.code WHEN MATCHED THEN UPDATE SET population = (SELECT count(*) FROM customers d WHERE d.country = k.code);
MERGE INTO products p USING (VALUES (1), (2), (900)) v(id) ON v.id = p.id WHEN MATCHED AND v.id = 1 THEN DO NOTHING WHEN MATCHED THEN UPDATE SET name = p.name || '?' WHEN NOT MATCHED THEN INSERT (id, name) VALUES (v.id, 'made');
MERGE INTO calendar d USING (SELECT placed_at::date AS day, count(*) AS n FROM orders WHERE placed_at IS NOT NULL GROUP BY 1) o ON o.day = d.day WHEN MATCHED THEN UPDATE SET holiday = o.n::text WHEN NOT MATCHED THEN INSERT VALUES (o.day, 'new');
MERGE INTO customers c USING countries k ON k.code = c.country WHEN MATCHED AND k.region = 'Europe' THEN UPDATE SET city = k.name;
--@ error
MERGE INTO orders o USING (VALUES ('lost'), ('lost')) v(status) ON v.status = o.status WHEN MATCHED THEN DELETE;
--@ error
MERGE INTO countries k USING customers c ON c.country = k.code WHEN MATCHED THEN UPDATE SET name = c.name;
--@ error
MERGE INTO tickets t USING (SELECT id FROM customers) c ON c.id = t.customer_id WHEN NOT MATCHED THEN INSERT (id, subject) VALUES (1, NULL);
-- Rows of the source that have no key.
MERGE INTO customers c USING (SELECT referrer, count(*) AS n FROM customers GROUP BY referrer) q ON q.referrer = c.id WHEN MATCHED THEN UPDATE SET referrer = q.n;
MERGE INTO customers c USING (SELECT referrer, count(*) AS n FROM customers GROUP BY referrer) q ON q.referrer = c.id WHEN MATCHED THEN UPDATE SET referrer = q.n WHEN NOT MATCHED AND q.referrer IS NOT NULL THEN INSERT (id, name) VALUES (q.referrer, 'new');
MERGE INTO events e USING (VALUES ('nowhere', NULL::int), ('click', 1)) v(kind, n) ON e.kind = v.kind WHEN MATCHED THEN UPDATE SET value = v.n;
--@ error
MERGE INTO customers c USING (SELECT referrer, count(*) AS n FROM customers GROUP BY referrer) q ON q.referrer = c.id WHEN NOT MATCHED THEN INSERT (id, name) VALUES (q.referrer, 'new');
