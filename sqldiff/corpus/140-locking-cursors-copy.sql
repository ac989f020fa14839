-- Row locks.
SELECT id FROM customers WHERE id = 2 FOR UPDATE;
SELECT id FROM customers WHERE vip FOR UPDATE;
SELECT id FROM orders WHERE status = 'paid' FOR SHARE;
SELECT id FROM orders FOR NO KEY UPDATE;
SELECT id FROM orders FOR KEY SHARE;
SELECT id FROM orders ORDER BY id LIMIT 3 FOR UPDATE;
SELECT id FROM orders ORDER BY id LIMIT 3 FOR UPDATE SKIP LOCKED;
SELECT id FROM orders WHERE total > 300 FOR UPDATE NOWAIT;
SELECT c.id, o.id FROM customers c JOIN orders o ON o.customer_id = c.id FOR UPDATE OF o;
SELECT c.id, e.seq FROM customers c JOIN events e ON e.customer_id = c.id FOR UPDATE;
SELECT c.id, k.name FROM customers c JOIN countries k ON k.code = c.country FOR UPDATE OF c;
SELECT name FROM countries FOR SHARE;
SELECT name FROM staff WHERE dept = 'it' FOR UPDATE;
SELECT * FROM (SELECT id FROM orders WHERE total > 350 FOR UPDATE) q;
--@ error
SELECT status, count(*) FROM orders GROUP BY status FOR UPDATE;
BEGIN;
SELECT id FROM orders WHERE total > 300 FOR UPDATE;
UPDATE orders SET note = 'locked' WHERE customer_id = 2;
COMMIT;
-- Cursors.
BEGIN;
DECLARE c CURSOR FOR SELECT id, name FROM customers ORDER BY id;
--@ ordered
FETCH 3 FROM c;
FETCH NEXT FROM c;
MOVE 2 IN c;
FETCH ALL FROM c;
CLOSE c;
COMMIT;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, total FROM orders ORDER BY id;
--@ ordered
FETCH LAST FROM c;
FETCH PRIOR FROM c;
FETCH ABSOLUTE 5 FROM c;
FETCH RELATIVE -2 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH FIRST FROM c;
COMMIT;
BEGIN;
DECLARE c CURSOR FOR SELECT status, count(*) FROM orders GROUP BY status ORDER BY status;
--@ ordered
FETCH 2 FROM c;
FETCH 10 FROM c;
FETCH 1 FROM c;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT c.id, e.seq FROM customers c JOIN events e ON e.customer_id = c.id ORDER BY 1, 2;
--@ ordered
FETCH FORWARD 5 FROM c;
FETCH FORWARD ALL FROM c;
ROLLBACK;
BEGIN;
DECLARE c BINARY CURSOR FOR SELECT id FROM customers ORDER BY id;
--@ ordered
FETCH 5 FROM c;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM orders WHERE customer_id = 2 ORDER BY id;
--@ ordered
FETCH 1 FROM c;
FETCH ALL FROM c;
COMMIT;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM orders WHERE customer_id = 2 AND id > 0 ORDER BY id FOR UPDATE;
--@ ordered
FETCH 1 FROM c;
UPDATE orders SET note = 'here' WHERE CURRENT OF c;
COMMIT;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM orders WHERE total > 100 ORDER BY id FOR UPDATE;
--@ ordered
FETCH 1 FROM c;
DELETE FROM orders WHERE CURRENT OF c;
COMMIT;
--@ error
BEGIN;
FETCH 1 FROM nothing;
ROLLBACK;
-- COPY out.
COPY customers TO STDOUT;
COPY orders (id, total) TO STDOUT;
COPY countries TO STDOUT;
COPY staff TO STDOUT;
COPY orders TO STDOUT WITH (FORMAT csv, HEADER);
COPY (SELECT * FROM customers) TO STDOUT;
COPY (SELECT id, name FROM customers ORDER BY id) TO STDOUT;
COPY (SELECT id, name, city FROM customers ORDER BY name, id) TO STDOUT WITH (FORMAT csv, NULL 'nil', FORCE_QUOTE *);
COPY (SELECT status, count(*), sum(total) FROM orders GROUP BY status ORDER BY status) TO STDOUT WITH CSV HEADER;
COPY (SELECT c.id, e.seq FROM customers c JOIN events e ON e.customer_id = c.id) TO STDOUT;
COPY (SELECT note FROM orders WHERE customer_id = 2) TO STDOUT;
COPY (SELECT tags, profile FROM customers) TO STDOUT WITH (DELIMITER '|');
COPY (DELETE FROM orders WHERE total > 390 RETURNING id) TO STDOUT;
--@ error
COPY (SELECT * FROM nothing) TO STDOUT;
COPY returns TO STDOUT;
-- COPY in.
--@ data 2\t7001\tlate\t1.50
--@ data 5\t7002\t\N\t2.50
--@ data 8\t7003\tbroken\t3.50
COPY returns FROM STDIN;
--@ data 7001,2,late
--@ data 7002,5,
COPY returns (id, customer_id, reason) FROM STDIN WITH (FORMAT csv);
--@ data 2\t7001\tlate\t1.50
--@ data 2\t7001\ttwice\t2.50
--@ error
COPY returns FROM STDIN;
--@ data 2\t7001\tlate\tnot a number
--@ error
COPY returns FROM STDIN;
--@ data zz\tZedland\tAsia\t5
COPY countries FROM STDIN;
--@ data it\t77\tNew\t1\t100.00\t2020-01-01
COPY staff FROM STDIN;
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM orders WHERE customer_id = 5 FOR UPDATE;
MOVE 1 FROM c;
DELETE FROM orders WHERE CURRENT OF c;
SELECT count(*) FROM orders WHERE customer_id = 5;
ROLLBACK;
--@ error
BEGIN;
UPDATE orders SET note = 'x' WHERE CURRENT OF nothing;
ROLLBACK;
--@ error
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM customers WHERE id = 5;
MOVE 1 FROM c;
UPDATE orders SET note = 'x' WHERE CURRENT OF c;
ROLLBACK;
