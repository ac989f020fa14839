-- LIMIT, OFFSET, arrays, NULLs and unknown types as parameters.
--@ params 5 | 3
SELECT id FROM customers ORDER BY id LIMIT $1 OFFSET $2;
--@ params NULL | NULL
SELECT id FROM customers ORDER BY id LIMIT $1 OFFSET $2;
--@ params 0
SELECT id FROM customers ORDER BY id LIMIT $1;
--@ params 100000000
SELECT id FROM customers ORDER BY id OFFSET $1;
--@ params 2
SELECT status, total FROM orders WHERE total IS NOT NULL ORDER BY total DESC FETCH FIRST $1 ROWS WITH TIES;
--@ params {2,5,NULL,8}
SELECT id, name FROM customers WHERE id = ANY ($1);
--@ params {2,5,NULL,8}
SELECT count(*) FROM customers WHERE id <> ALL ($1);
--@ params {}
SELECT count(*) FROM customers WHERE id = ANY ($1);
--@ params NULL
SELECT count(*) FROM customers WHERE id = ANY ($1);
--@ params NULL
SELECT count(*) FROM customers WHERE id = $1;
--@ params NULL
SELECT count(*) FROM orders WHERE $1::text IS NULL OR status = $1;
--@ params paid
SELECT count(*) FROM orders WHERE $1::text IS NULL OR status = $1;
--@ params 1 | x
SELECT $1, $2, count(*) FROM orders;
--@ params 3
SELECT $1::int + id FROM customers WHERE id > $1 ORDER BY 1;
--@ params 1.5
SELECT sum(total * $1) FROM orders;
--@ params 2020-06-01
SELECT count(*) FROM orders WHERE placed_at >= $1;
--@ params 10 days
SELECT count(*) FROM orders WHERE placed_at + $1 > '2020-12-31';
--@ params {a,b} | 2
SELECT u, c.id FROM unnest($1::text[]) u, customers c WHERE c.id = $2;
--@ params {2,5,8} | {x,y,z}
SELECT c.id, v.label FROM customers c JOIN unnest($1::bigint[], $2::text[]) AS v(id, label) ON v.id = c.id;
--@ params {2,5,8} | {x,y,z}
UPDATE customers c SET city = v.city FROM unnest($1::bigint[], $2::text[]) AS v(id, city) WHERE v.id = c.id RETURNING c.id, c.city;
--@ params {901,902,903} | {x,NULL,z}
INSERT INTO customers (id, name, city) SELECT i, 'n', t FROM unnest($1::bigint[], $2::text[]) AS v(i, t) RETURNING id, city;
--@ params 904 | NULL
INSERT INTO customers (id, name, city) VALUES ($1, 'p', $2), ($1 + 1, 'p', $2) ON CONFLICT (id) DO UPDATE SET city = excluded.city RETURNING *;
--@ params 2 | 10
WITH a AS (UPDATE customers SET credit = credit - $2 WHERE id = $1 RETURNING id, credit) INSERT INTO audit (what, amount) SELECT 'taken', credit FROM a RETURNING what, amount;
--@ params 30
SELECT o.customer_id, i.product_id FROM orders o JOIN items i ON i.order_id = o.id WHERE o.total > $1 AND i.quantity * 10 > $1;
--@ params %a%
SELECT name FROM customers WHERE name ILIKE $1 ORDER BY name COLLATE "C", id;
--@ params [1,2]
SELECT id FROM customers WHERE profile -> 'langs' @> $1 OR id < 0;
--@ params t
SELECT count(*) FROM customers WHERE vip = $1;
--@ params 2 | 4
SELECT id, ntile($1) OVER (ORDER BY id), lag(id, $2) OVER (ORDER BY id) FROM customers;
--@ params 0.5
SELECT percentile_cont($1) WITHIN GROUP (ORDER BY total::float8) FROM orders;
--@ params 5
SELECT id FROM customers WHERE id IN (SELECT customer_id FROM orders WHERE total > $1 * 20) OR id = $1;
--@ params 2 | 5 | 8
SELECT id FROM customers WHERE id IN ($1, $2, $3);
--@ params 2 | 2
DELETE FROM orders WHERE customer_id = $1 OR customer_id = $2 + 3 RETURNING customer_id, id;
--@ params abc
--@ error
SELECT id FROM customers WHERE id = $1;
--@ params 1
--@ error
SELECT id / ($1 - 1) FROM customers;
--@ params 5
--@ error
SELECT id FROM customers WHERE id > $2;
BEGIN;
PREPARE q (bigint, text) AS SELECT id, status FROM orders WHERE customer_id > $1 AND status = $2;
EXECUTE q (10, 'paid');
EXECUTE q (NULL, 'paid');
EXECUTE q (1 + 1, upper('x'));
DEALLOCATE q;
ROLLBACK;
BEGIN;
PREPARE q AS SELECT count(*) FROM orders WHERE total > $1;
EXECUTE q (100);
EXECUTE q ('200');
PREPARE w (int) AS UPDATE orders SET note = 'w' WHERE id % $1 = 0 RETURNING id;
EXECUTE w (20);
PREPARE i AS INSERT INTO tickets (subject) VALUES ($1), ($1 || '!') RETURNING subject;
EXECUTE i ('hello');
ROLLBACK;
