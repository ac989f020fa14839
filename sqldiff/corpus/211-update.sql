UPDATE customers SET id = id + 10000 WHERE vip RETURNING id, name, tags;
UPDATE customers SET id = -id WHERE id > 100 RETURNING *;
UPDATE accounts SET id = md5(id::text)::uuid WHERE kind = 'gold' RETURNING owner, code, flags, kind;
UPDATE events SET device = device || '-x', payload = '{}' WHERE kind = 'error' RETURNING *;
UPDATE returns SET customer_id = customer_id + 3 RETURNING customer_id, id, reason, amount;
UPDATE orders SET customer_id = customer_id + 1 WHERE NOT EXISTS (SELECT FROM items i WHERE i.order_id = orders.id AND i.customer_id = orders.customer_id) RETURNING customer_id, id, placed_at, note;
UPDATE tickets SET id = tickets.id + 5000 FROM customers c WHERE c.id = tickets.customer_id RETURNING tickets.id, c.name;
UPDATE orders o SET note = c.name || '/' || k.name FROM customers c LEFT JOIN countries k ON k.code = c.country WHERE c.id = o.customer_id RETURNING o.id, o.note;
UPDATE orders SET total = total * 1.1, note = (SELECT name FROM customers c WHERE c.id = orders.customer_id + 3) RETURNING id, total, note;
UPDATE orders o SET total = q.avg FROM (SELECT status, avg(total) AS avg FROM orders GROUP BY status) q WHERE q.status = o.status RETURNING o.id, o.total;
UPDATE customers c SET credit = credit + x.n FROM (SELECT referrer, count(*) AS n FROM customers GROUP BY referrer) x WHERE x.referrer = c.id RETURNING c.id, c.credit, x.n;
UPDATE customers SET credit = DEFAULT, vip = DEFAULT, city = NULL WHERE id % 2 = 0 RETURNING id, credit, vip, city;
UPDATE customers SET (city, country) = (SELECT 'c', code FROM countries ORDER BY population DESC NULLS LAST LIMIT 1) WHERE country IS NULL RETURNING id, city, country;
UPDATE customers SET tags = array_append(tags, 'x'), profile = profile || '{"z": 1}' WHERE tags IS NOT NULL RETURNING tags, profile;
UPDATE customers SET tags[1] = 'first' WHERE cardinality(tags) > 0 RETURNING tags;
UPDATE countries SET population = (SELECT count(*) FROM customers c WHERE c.country = countries.code) RETURNING code, population;
UPDATE products p SET price = s.avg FROM (SELECT product_id, avg(price) AS avg FROM items GROUP BY product_id) s WHERE s.product_id = p.id RETURNING p.id, p.price;
UPDATE staff SET salary = salary + (SELECT count(*) FROM orders) WHERE dept = 'it' RETURNING name, salary;
UPDATE audit a SET amount = o.total FROM orders o WHERE o.id = a.id RETURNING a.id, a.amount, o.status;
UPDATE big_orders SET total = total + 1 RETURNING id, total;
UPDATE orders SET total = total WHERE false RETURNING *;
UPDATE ONLY orders SET note = 'only' WHERE id = 5 RETURNING note;
UPDATE orders SET note = 'n' WHERE customer_id IN (2, 5, 8) AND id IN (SELECT order_id FROM items WHERE quantity > 3) RETURNING customer_id, id;
UPDATE orders SET note = 'm' WHERE id = (SELECT max(id) FROM orders) RETURNING id;
UPDATE orders SET note = 'r' || round(random() * 0) WHERE status = 'new' RETURNING note;
UPDATE orders SET placed_at = now() - now() + timestamptz '2020-02-02' WHERE id < 10 RETURNING id;
WITH o AS (SELECT customer_id, max(id) AS id FROM orders GROUP BY customer_id) UPDATE orders SET note = 'last' FROM o WHERE o.customer_id = orders.customer_id AND o.id = orders.id RETURNING orders.id;
WITH RECURSIVE r AS (SELECT id FROM customers WHERE id = 2 UNION SELECT c.id FROM customers c JOIN r ON c.referrer = r.id) UPDATE customers SET city = 'tree' WHERE id IN (SELECT id FROM r) RETURNING id;
--@ error
UPDATE customers SET id = 2 WHERE id > 2;
--@ error
UPDATE customers SET credit = -100000 WHERE id = 8;
--@ error
UPDATE customers SET credit = 1 / (id - 5);
--@ error
UPDATE customers SET city = (SELECT name FROM customers);
--@ error
UPDATE orders SET status = 'odd';
--@ error
UPDATE items SET order_id = 424242 WHERE customer_id = 2;
--@ error
UPDATE customers SET country = 'zz' WHERE vip;
