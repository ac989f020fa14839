TRUNCATE returns;
TRUNCATE items;
TRUNCATE orders CASCADE;
--@ error
TRUNCATE orders;
TRUNCATE orders, items;
TRUNCATE events, accounts;
TRUNCATE tickets RESTART IDENTITY;
BEGIN;
TRUNCATE tickets RESTART IDENTITY;
INSERT INTO tickets (subject) VALUES ('first') RETURNING id;
ROLLBACK;
TRUNCATE audit RESTART IDENTITY;
BEGIN;
TRUNCATE audit RESTART IDENTITY;
INSERT INTO audit (what) VALUES ('first') RETURNING id;
ROLLBACK;
TRUNCATE calendar, staff;
TRUNCATE countries CASCADE;
--@ error
TRUNCATE countries;
TRUNCATE products;
--@ error
TRUNCATE nothing;
BEGIN;
UPDATE orders SET total = 1 WHERE customer_id = 2;
UPDATE orders SET total = 2 WHERE customer_id = 5;
SELECT total FROM orders WHERE customer_id = 2;
COMMIT;
BEGIN;
UPDATE orders SET total = 1;
SELECT count(*), sum(total) FROM orders;
ROLLBACK;
BEGIN;
DELETE FROM orders WHERE status = 'lost';
SELECT status, count(*) FROM orders GROUP BY status;
INSERT INTO orders (customer_id, id, status) VALUES (2, 9001, 'lost'), (5, 9001, 'lost');
SELECT status, count(*) FROM orders GROUP BY status;
COMMIT;
BEGIN;
INSERT INTO customers (id, name) VALUES (500, 'a');
SAVEPOINT s;
INSERT INTO customers (id, name) VALUES (501, 'b');
ROLLBACK TO s;
INSERT INTO customers (id, name) VALUES (502, 'c');
COMMIT;
--@ error
BEGIN;
UPDATE orders SET total = 0 WHERE status = 'paid';
SAVEPOINT s;
INSERT INTO orders (customer_id, id) VALUES (2, 9001), (5, 9001), (2, 9001);
ROLLBACK TO SAVEPOINT s;
SELECT count(*) FROM orders WHERE total = 0;
COMMIT;
--@ error
BEGIN;
INSERT INTO customers (id, name) VALUES (2, 'dup');
SELECT 1;
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM orders;
SELECT sum(total) FROM orders;
COMMIT;
--@ error
BEGIN READ ONLY;
SELECT count(*) FROM orders;
UPDATE orders SET total = 0;
ROLLBACK;
--@ error
BEGIN READ ONLY;
DELETE FROM orders WHERE customer_id = 2;
ROLLBACK;
BEGIN;
LOCK TABLE orders IN SHARE MODE;
SELECT count(*) FROM orders;
COMMIT;
