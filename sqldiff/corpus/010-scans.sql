SELECT * FROM customers;
SELECT count(*) FROM orders;
SELECT * FROM orders WHERE customer_id = 2;
SELECT id, name FROM customers ORDER BY name, id;
INSERT INTO orders VALUES (2, 999, 'new', 1, NULL, NULL);
BEGIN;
DELETE FROM orders WHERE customer_id = 2;
SELECT * FROM orders WHERE customer_id = 2;
ROLLBACK;
