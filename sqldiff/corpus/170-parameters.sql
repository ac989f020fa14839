--@ params 2
SELECT * FROM customers WHERE id = $1;
--@ params 20
SELECT id FROM customers WHERE id < $1;
--@ params 5 | 50
SELECT id FROM customers WHERE id BETWEEN $1 AND $2;
--@ params {2,5,8}
SELECT id FROM customers WHERE id = ANY ($1);
--@ params {2,5,8}
SELECT id FROM customers WHERE id <> ALL ($1::bigint[]);
--@ params 2 | 5
SELECT id FROM customers WHERE id IN ($1, $2);
--@ params NULL
SELECT id FROM customers WHERE id = $1;
--@ params NULL
SELECT id FROM customers WHERE city IS NOT DISTINCT FROM $1;
--@ params Paris
SELECT count(*) FROM customers WHERE city = $1;
--@ params paid | 100
SELECT count(*), sum(total) FROM orders WHERE status = $1 AND total > $2;
--@ params 3
SELECT id FROM customers ORDER BY id LIMIT $1;
--@ params 3 | 4
SELECT id FROM customers ORDER BY id LIMIT $1 OFFSET $2;
--@ params NULL
SELECT id FROM customers ORDER BY id LIMIT $1;
--@ params 2
SELECT status, count(*) FROM orders GROUP BY status HAVING count(*) > $1;
--@ params 10
SELECT id % $1, count(*) FROM orders GROUP BY 1;
--@ params 100
SELECT c.id, o.id FROM customers c JOIN orders o ON o.customer_id = c.id AND o.total > $1;
--@ params 100
SELECT c.id, o.id FROM customers c LEFT JOIN orders o ON o.customer_id = c.id AND o.total > $1;
--@ params click
SELECT c.id, e.seq FROM customers c JOIN events e ON e.customer_id = c.id WHERE e.kind = $1;
--@ params x
SELECT $1::text || name FROM customers;
--@ params 7
SELECT id, $1::int AS p FROM orders WHERE id < 5;
--@ params 2 | abc
SELECT $1::bigint = id, $2 FROM customers WHERE id = 2;
--@ params 0.5
SELECT percentile_cont($1) WITHIN GROUP (ORDER BY quantity) FROM items;
--@ params 2
SELECT id FROM customers c WHERE (SELECT count(*) FROM orders o WHERE o.customer_id = c.id) > $1;
--@ params 200
WITH q AS (SELECT * FROM orders WHERE total > $1) SELECT count(*) FROM q;
--@ params 2020-06-01
SELECT count(*) FROM orders WHERE placed_at >= $1;
--@ params 1 day
SELECT count(*) FROM orders WHERE placed_at < now() - $1::interval;
--@ params {"ok": true}
SELECT count(*) FROM events WHERE payload @> $1;
--@ params A%
SELECT id FROM customers WHERE name LIKE $1;
--@ params 2 | 8001 | 9.99
INSERT INTO orders (customer_id, id, total) VALUES ($1, $2, $3) RETURNING *;
--@ params 2 | 5 | 8 | 8002
INSERT INTO orders (customer_id, id) VALUES ($1, $4), ($2, $4), ($3, $4);
--@ params lost
UPDATE orders SET note = $1 WHERE status = $1 RETURNING customer_id, id, note;
--@ params 2 | gift
UPDATE orders SET note = $2 WHERE customer_id = $1;
--@ params 300
DELETE FROM orders WHERE total > $1;
--@ params {2,5}
DELETE FROM tickets WHERE id = ANY ($1);
--@ params zz | Zedland
INSERT INTO countries (code, name) VALUES ($1, $2);
--@ params 2
SELECT * FROM customers WHERE id = $1 AND id = $1;
--@ params nonsense
--@ error
SELECT id FROM customers WHERE id = $1;
--@ params 2
SELECT id FROM customers WHERE id = $1::int;
--@ params 2.0
SELECT id FROM customers WHERE id = $1::numeric;
--@ params 2 | 5
SELECT id FROM customers WHERE id = $1 UNION SELECT id FROM customers WHERE id = $2;
BEGIN;
PREPARE p(bigint) AS SELECT count(*) FROM orders WHERE customer_id > $1;
EXECUTE p(2);
EXECUTE p(50);
DEALLOCATE p;
ROLLBACK;
BEGIN;
PREPARE p(bigint) AS SELECT id FROM orders WHERE customer_id = $1;
EXECUTE p(2);
EXECUTE p(5);
DEALLOCATE p;
ROLLBACK;
BEGIN;
PREPARE p AS UPDATE orders SET total = 0 WHERE status = 'lost';
EXECUTE p;
DEALLOCATE p;
COMMIT;
