INSERT INTO tickets (subject, customer_id) VALUES ('a', 1), ('b', DEFAULT), ('c', (SELECT max(id) FROM customers)) RETURNING *;
INSERT INTO tickets VALUES (DEFAULT, 'd', 4, true), (5000, 'e', NULL, false), (DEFAULT, upper('f'), 1 + 1, DEFAULT) RETURNING id > 0, subject, customer_id, open;
INSERT INTO tickets (subject) SELECT name FROM customers WHERE id < 10 ORDER BY id RETURNING subject;
INSERT INTO tickets OVERRIDING SYSTEM VALUE VALUES (7000, 'x') RETURNING id;
--@ error
INSERT INTO tickets DEFAULT VALUES RETURNING *;
INSERT INTO orders (customer_id, id, total) SELECT id, 2000 + id, credit FROM customers WHERE credit > 0 ON CONFLICT DO NOTHING RETURNING customer_id, id, status;
INSERT INTO orders (customer_id, id, total) SELECT customer_id, id, 1 FROM orders WHERE id < 20 ON CONFLICT (customer_id, id) DO UPDATE SET total = orders.total + excluded.total, note = 'again' WHERE orders.status <> 'lost' RETURNING customer_id, id, total, note;
INSERT INTO orders AS o (customer_id, id, total) VALUES (2, 1, 5), (5, 2, 6), (8, 9000, 7) ON CONFLICT (customer_id, id) DO UPDATE SET total = o.total + (SELECT count(*) FROM events), status = DEFAULT RETURNING o.*;
INSERT INTO customers (id, name) VALUES (2, 'two'), (5, 'five'), (3001, 'new') ON CONFLICT (id) DO UPDATE SET (name, city) = (excluded.name, 'moved') RETURNING id, name, city;
INSERT INTO customers (id, name) VALUES (3002, 'x'), (3003, 'y') ON CONFLICT DO NOTHING RETURNING *;
INSERT INTO customers (id, name) SELECT g, 'g' || g FROM generate_series(3100, 3120) g RETURNING id;
INSERT INTO customers (name, id) (SELECT name, id + 4000 FROM customers WHERE vip) RETURNING id;
INSERT INTO customers (id, name, tags, profile) VALUES (3200, E'it''s\ttab', '{a,"b c",NULL}', '{"a": [1, 2]}'), (3201, $$dollar$$, ARRAY['x', NULL], jsonb_build_object('k', 1)) RETURNING tags, profile;
WITH src AS (SELECT customer_id, sum(total) AS s FROM orders GROUP BY customer_id) INSERT INTO returns (customer_id, id, amount) SELECT customer_id, 500, s FROM src WHERE s > 100 RETURNING *;
INSERT INTO returns (customer_id, id, reason) SELECT c.id, row_number() OVER (ORDER BY c.id) + 100, k.name FROM customers c JOIN countries k ON k.code = c.country RETURNING customer_id, id, reason, amount;
INSERT INTO audit (what, amount) SELECT 'sum', sum(total) FROM orders GROUP BY status ORDER BY status RETURNING what, amount;
INSERT INTO audit (what, customer_id) SELECT 'c', id FROM customers WHERE id IN (SELECT customer_id FROM orders) ORDER BY id RETURNING what, customer_id;
INSERT INTO countries (code, name) SELECT DISTINCT lower(left(name, 2)) || 'q', 'made' FROM customers WHERE name ~ '^[A-Za-z]{2}' RETURNING *;
INSERT INTO products (id, name, price) SELECT 100 + count(*), 'counted', avg(total) FROM orders RETURNING id, name, price;
INSERT INTO items (customer_id, order_id, line, quantity, price) SELECT customer_id, id, 90, 1, total FROM orders WHERE total > 300 RETURNING *;
INSERT INTO events (device, kind, seq, customer_id) SELECT 'dev-' || id, 'login', 9000 + id, customer_id FROM orders WHERE id < 10 RETURNING device, seq;
INSERT INTO accounts (id, owner) SELECT ('00000000-0000-4000-8000-' || lpad((id + 100)::text, 12, '0'))::uuid, id FROM customers RETURNING id, owner, balance;
INSERT INTO big_orders (customer_id, id, status, total) VALUES (2, 8001, 'new', 500), (5, 8002, 'paid', 1) RETURNING *;
--@ error
INSERT INTO customers (id, name) VALUES (3300, 'a'), (3300, 'b');
--@ error
INSERT INTO customers (id, name) VALUES (3300, 'a'), (3301, NULL);
--@ error
INSERT INTO customers (id, name, country) VALUES (3300, 'a', 'de'), (3301, 'b', 'zz');
--@ error
INSERT INTO customers (id, name) VALUES (3300, 'a'), (3300, 'b') ON CONFLICT (id) DO UPDATE SET name = excluded.name;
--@ error
INSERT INTO customers (id, name) SELECT id % 3 + 3300, 'x' FROM orders ON CONFLICT (id) DO UPDATE SET name = 'y';
--@ error
INSERT INTO items (customer_id, order_id, line, quantity) VALUES (2, 999999, 1, 1);
--@ error
INSERT INTO orders (customer_id, id, total) SELECT id, 1, 1 / (id - 2) FROM customers;
--@ error
INSERT INTO orders (customer_id, id) VALUES (1, 1, 1);
--@ error
INSERT INTO orders (customer_id, nothing) VALUES (1, 1);
--@ error
INSERT INTO orders (customer_id, id, status) SELECT id, 5000, 'odd' FROM customers;
