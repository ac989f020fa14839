UPDATE orders SET total = total + 1;
UPDATE orders SET total = total + 1 WHERE customer_id = 2;
UPDATE orders SET total = 0 WHERE status = 'lost';
UPDATE orders SET total = 0 WHERE status = 'nothing';
UPDATE orders SET status = 'paid', note = NULL WHERE total > 200 RETURNING customer_id, id, status;
UPDATE orders SET total = DEFAULT, status = DEFAULT WHERE id < 10;
UPDATE orders SET (total, note) = (1, 'row') WHERE id < 10;
UPDATE orders SET (total, note) = (SELECT credit, name FROM customers c WHERE c.id = orders.customer_id);
UPDATE orders SET total = (SELECT max(total) FROM orders) WHERE total IS NULL;
UPDATE orders SET total = (SELECT sum(quantity * price) FROM items i WHERE i.customer_id = orders.customer_id AND i.order_id = orders.id);
UPDATE orders SET total = (SELECT count(*) FROM events e WHERE e.customer_id = orders.customer_id);
UPDATE orders SET note = 'many' WHERE customer_id IN (SELECT customer_id FROM orders GROUP BY customer_id HAVING count(*) > 3);
UPDATE orders SET note = 'vip' WHERE customer_id IN (SELECT id FROM customers WHERE vip);
UPDATE orders o SET note = 'event' WHERE EXISTS (SELECT FROM events e WHERE e.customer_id = o.customer_id);
UPDATE orders SET note = 'top' WHERE (customer_id, id) IN (SELECT customer_id, id FROM orders ORDER BY total DESC NULLS LAST, id LIMIT 5);
UPDATE orders SET note = 'old' WHERE placed_at < now() - interval '1 year' AND id < 50;
UPDATE orders o SET note = c.name FROM customers c WHERE c.id = o.customer_id;
UPDATE orders o SET note = c.name FROM customers c WHERE c.id = o.customer_id AND c.vip RETURNING o.id, c.id;
UPDATE orders o SET note = k.name FROM customers c JOIN countries k ON k.code = c.country WHERE c.id = o.customer_id;
UPDATE orders o SET note = a.what FROM (SELECT customer_id, min(what) AS what FROM audit GROUP BY customer_id) a WHERE a.customer_id = o.customer_id;
UPDATE orders o SET total = q.n FROM (SELECT customer_id, count(*) AS n FROM events GROUP BY customer_id) q WHERE q.customer_id = o.customer_id;
UPDATE orders o SET note = 'listed' FROM (VALUES (1), (2), (3)) v(id) WHERE v.id = o.id;
UPDATE customers c SET credit = credit + q.s FROM (SELECT customer_id, sum(total) AS s FROM orders GROUP BY customer_id) q WHERE q.customer_id = c.id;
UPDATE customers c SET referrer = d.id FROM (SELECT city, min(id) AS id FROM customers GROUP BY city) d WHERE d.city = c.city RETURNING c.id, c.referrer;
UPDATE customers SET tags = array_append(tags, 'seen'), profile = jsonb_set(coalesce(profile, '{}'), '{seen}', 'true');
UPDATE customers SET tags[1] = 'first' WHERE cardinality(tags) > 0;
UPDATE customers SET name = upper(name) WHERE id BETWEEN 10 AND 40;
UPDATE customers SET vip = NOT vip WHERE id IN (2, 5, 8);
UPDATE customers SET credit = -credit RETURNING id, credit;
UPDATE items SET price = price * 1.1 WHERE product_id = 3;
UPDATE items i SET price = p.price FROM products p WHERE p.id = i.product_id;
UPDATE items i SET price = p.price FROM products p WHERE p.id = i.product_id AND i.customer_id = 2;
UPDATE events SET value = value * 2 WHERE kind = 'click';
UPDATE events SET value = 0 WHERE device = 'dev-03' RETURNING seq;
UPDATE events e SET payload = to_jsonb(c.name) FROM customers c WHERE c.id = e.customer_id;
UPDATE accounts SET balance = balance - 10 WHERE balance > 100;
UPDATE accounts a SET balance = balance + c.credit FROM customers c WHERE c.id = a.owner AND c.credit IS NOT NULL;
UPDATE tickets SET open = false WHERE customer_id IN (SELECT customer_id FROM orders WHERE status = 'paid');
-- Volatile functions.
UPDATE orders SET note = 'r' WHERE random() >= 0;
UPDATE orders SET note = CASE WHEN random() < 2 THEN 'always' END;
UPDATE customers SET name = shout(name);
UPDATE orders SET placed_at = now() WHERE customer_id = -100;
UPDATE customers SET name = 'x' || (random() * 0)::int WHERE vip RETURNING id, name;
-- The key itself.
UPDATE customers SET id = 1000 WHERE id = 2;
UPDATE customers SET id = id + 1000;
UPDATE customers SET id = -id - 1000 WHERE vip RETURNING id;
UPDATE customers SET id = id WHERE id = 2;
--@ error
UPDATE customers SET id = 2 WHERE id = 5;
UPDATE returns SET customer_id = customer_id + 1;
UPDATE tickets SET id = id + 100 WHERE open;
UPDATE events SET device = 'dev-' || seq WHERE kind = 'error';
UPDATE events SET device = upper(device) RETURNING device, seq;
UPDATE accounts SET id = '11111111-1111-1111-1111-111111111111' WHERE id = (SELECT min(id::text)::uuid FROM accounts);
UPDATE staff SET dept = 'it' WHERE dept = 'ops';
--@ error
UPDATE customers SET id = NULL WHERE id = 2;
-- Reference and local tables.
UPDATE countries SET population = population + 1;
UPDATE countries SET region = 'Europe' WHERE code IN ('de', 'fr') RETURNING code;
UPDATE countries k SET population = q.n FROM (SELECT country, count(*) AS n FROM customers GROUP BY country) q WHERE q.country = k.code;
UPDATE products SET price = (SELECT avg(price) FROM items WHERE product_id = products.id);
UPDATE products SET name = name || '!' WHERE id IN (SELECT product_id FROM items);
UPDATE staff SET salary = salary * 1.1;
UPDATE staff s SET salary = 0 FROM customers c WHERE c.name = s.name;
UPDATE audit SET amount = (SELECT sum(total) FROM orders o WHERE o.customer_id = audit.customer_id);
UPDATE audit a SET what = c.name FROM customers c WHERE c.id = a.customer_id RETURNING a.id, a.what;
UPDATE calendar SET holiday = 'busy' WHERE day IN (SELECT placed_at::date FROM orders);
UPDATE ONLY orders SET note = 'only' WHERE id = 7;
-- Several columns from one subquery.
UPDATE customers SET (credit, referrer) = (SELECT sum(total), count(*) FROM orders o WHERE o.customer_id = customers.id);
UPDATE customers c SET (credit, city) = (SELECT o.total, o.status FROM orders o WHERE o.note = c.name OR o.customer_id = c.id ORDER BY o.id, o.customer_id LIMIT 1) WHERE c.id < 20;
UPDATE events e SET (value, customer_id) = (SELECT c.credit::float8, c.id FROM customers c WHERE c.id = e.seq), payload = NULL WHERE kind = 'click' RETURNING e.seq, e.customer_id;
UPDATE tickets t SET (subject, customer_id) = (SELECT max(c.name), max(c.id) FROM customers c) FROM customers d WHERE d.id = t.customer_id;
--@ error
UPDATE tickets t SET (subject, customer_id) = (SELECT c.name, c.id FROM customers c WHERE c.id < 10);
UPDATE products p SET (category, price) = (SELECT c.name, c.credit FROM customers c WHERE c.id = p.id) WHERE p.id < 5 RETURNING p.id;
-- Columns of other tables in RETURNING.
UPDATE tickets t SET open = false FROM customers c WHERE c.id = t.customer_id RETURNING t.id, c.name, c.credit, c.id + t.id AS s;
UPDATE events e SET value = 1 FROM customers c WHERE c.id = e.customer_id AND c.vip RETURNING e.device, c.name || e.kind;
UPDATE tickets t SET open = true FROM customers c WHERE c.id = t.customer_id AND t.id < 5 RETURNING *;
UPDATE tickets t SET open = true FROM customers c WHERE c.id = t.customer_id AND t.id < 5 RETURNING c.*, t.subject;
UPDATE tickets SET subject = 's' WHERE id < 5 RETURNING id, (SELECT count(*) FROM customers);
UPDATE products p SET price = price + 1 FROM (SELECT product_id, max(price) AS top FROM items GROUP BY product_id) i WHERE i.product_id = p.id RETURNING p.id, p.price, i.top;
UPDATE countries SET population = random() * 0;
UPDATE countries k SET population = c.id FROM customers c WHERE c.country = k.code AND c.id = (SELECT min(id) FROM customers d WHERE d.country = c.country) RETURNING k.code, k.population, c.name;
UPDATE products SET name = (SELECT name FROM customers ORDER BY id LIMIT 1) WHERE id < 3;
