SELECT o.id, i.line FROM orders o JOIN items i ON i.order_id = o.id AND i.customer_id = o.customer_id WHERE o.total > 300 FOR UPDATE OF o SKIP LOCKED;
SELECT id FROM orders WHERE customer_id IN (SELECT id FROM customers WHERE vip) FOR SHARE;
SELECT id FROM customers WHERE id = (SELECT max(customer_id) FROM orders WHERE customer_id < 100) FOR NO KEY UPDATE;
SELECT id FROM tickets WHERE open ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED;
WITH next AS (SELECT id FROM tickets WHERE open ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED) UPDATE tickets t SET open = false FROM next WHERE next.id = t.id RETURNING t.id;
SELECT c.id, t.id FROM customers c LEFT JOIN tickets t ON t.customer_id = c.id FOR UPDATE OF c NOWAIT;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT o.id, c.name FROM orders o JOIN customers c ON c.id = o.customer_id ORDER BY o.id;
--@ ordered
MOVE FORWARD 10 IN c;
FETCH 2 FROM c;
FETCH BACKWARD 3 FROM c;
MOVE ABSOLUTE 0 IN c;
FETCH FORWARD 1 FROM c;
MOVE LAST IN c;
FETCH BACKWARD ALL FROM c;
FETCH PRIOR FROM c;
CLOSE c;
--@ error
FETCH 1 FROM c;
ROLLBACK;
BEGIN;
DECLARE c NO SCROLL CURSOR FOR SELECT status, sum(total) FROM orders GROUP BY status ORDER BY status;
--@ ordered
FETCH 1 FROM c;
FETCH ALL FROM c;
ROLLBACK;
BEGIN;
DECLARE a CURSOR FOR SELECT id FROM customers ORDER BY id;
DECLARE b CURSOR FOR SELECT id FROM orders ORDER BY id DESC;
--@ ordered
FETCH 2 FROM a;
FETCH 2 FROM b;
FETCH 2 FROM a;
SAVEPOINT s;
FETCH 1 FROM b;
ROLLBACK TO s;
FETCH 1 FROM a;
CLOSE ALL;
ROLLBACK;
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT id, total FROM orders ORDER BY id;
--@ ordered
FETCH 2 FROM h;
COMMIT;
COPY (SELECT id, note, total FROM orders ORDER BY id) TO STDOUT (FORMAT csv, HEADER, NULL 'nil', DELIMITER ';', QUOTE '''');
COPY (SELECT c.name, count(*) FROM customers c JOIN orders o ON o.customer_id = c.id GROUP BY c.name ORDER BY c.name COLLATE "C") TO STDOUT WITH CSV;
COPY (SELECT id, name, tags, profile FROM customers ORDER BY id) TO STDOUT (FORMAT text, DELIMITER '|');
COPY (SELECT id, total FROM orders ORDER BY id LIMIT 10) TO STDOUT (FORMAT binary);
COPY (WITH x AS (SELECT status, count(*) FROM orders GROUP BY 1) SELECT * FROM x ORDER BY 1) TO STDOUT;
COPY (VALUES (1, 'a'), (2, NULL)) TO STDOUT;
COPY orders (id, status) TO STDOUT (FORMAT csv);
COPY countries TO STDOUT (FORMAT csv, HEADER);
COPY staff (name, dept) TO STDOUT;
--@ data 7001,x,"a,b"
--@ data 7002,"y ""q""",
--@ data 7003,z,NULL
COPY customers (id, name, city) FROM STDIN (FORMAT csv, NULL 'NULL');
--@ data 7101	a	{x,y}
--@ data 7102	b	\N
COPY customers (id, name, tags) FROM STDIN;
--@ data id;name
--@ data 7201;n
COPY customers (id, name) FROM STDIN (FORMAT csv, HEADER MATCH, DELIMITER ';');
--@ data 7301	a
--@ data 7301	b
--@ error
COPY customers (id, name) FROM STDIN;
--@ data 7301	a
--@ data x	b
--@ error
COPY customers (id, name) FROM STDIN;
--@ data 7301	a	extra
--@ error
COPY customers (id, name) FROM STDIN;
--@ data 7401	5
--@ data 7402	50
COPY orders (customer_id, id) FROM STDIN WHERE id > 10;
