DELETE FROM customers c USING orders o JOIN items i ON i.order_id = o.id WHERE o.customer_id = c.referrer AND i.quantity > 6 RETURNING c.id;
DELETE FROM orders WHERE id NOT IN (SELECT order_id FROM items) RETURNING id;
DELETE FROM orders USING events e WHERE e.customer_id = orders.customer_id AND e.kind = 'error' RETURNING orders.id, e.seq IS NOT NULL;
DELETE FROM items WHERE (customer_id, order_id) IN (SELECT customer_id, id FROM orders WHERE status = 'lost') RETURNING *;
DELETE FROM orders o WHERE total < (SELECT avg(total) FROM orders p WHERE p.customer_id = o.customer_id) RETURNING o.*;
DELETE FROM orders WHERE customer_id = ANY (ARRAY[2, 5, 8]) RETURNING customer_id, id;
DELETE FROM countries k WHERE NOT EXISTS (SELECT FROM customers c WHERE c.country = k.code) RETURNING code;
DELETE FROM products WHERE id IN (SELECT product_id FROM items GROUP BY product_id HAVING sum(quantity) > 30) RETURNING id;
DELETE FROM staff WHERE name IN (SELECT name FROM customers) RETURNING dept, id;
DELETE FROM audit USING customers c WHERE c.id = audit.customer_id AND c.vip RETURNING audit.what, c.name;
DELETE FROM big_orders WHERE status = 'paid' RETURNING id;
DELETE FROM tickets WHERE id IN (SELECT id FROM tickets ORDER BY id DESC LIMIT 3) RETURNING id;
DELETE FROM events WHERE at = (SELECT max(at) FROM events) RETURNING device, kind, seq;
WITH gone AS (DELETE FROM returns RETURNING customer_id, amount) SELECT customer_id, count(*), sum(amount) FROM gone GROUP BY customer_id;
WITH gone AS (DELETE FROM orders WHERE status = 'lost' RETURNING *) INSERT INTO audit (id, what, amount, customer_id) SELECT 2000 + id, 'lost', total, customer_id FROM gone RETURNING what, amount;
WITH moved AS (DELETE FROM tickets WHERE open RETURNING *) INSERT INTO tickets SELECT id + 900, subject, customer_id, false FROM moved RETURNING id, open;
--@ error
DELETE FROM customers WHERE 1 / (id - 5) > 0;
