INSERT INTO orders VALUES (2, 9001, 'new', 10.00, '2020-01-01', 'x');
INSERT INTO orders (customer_id, id) VALUES (2, 9001);
INSERT INTO orders (id, customer_id, total) VALUES (9001, 2, 1.005);
INSERT INTO orders (customer_id, id) VALUES (2, 9001), (2, 9002);
INSERT INTO orders (customer_id, id) VALUES (2, 9001), (5, 9001), (8, 9001), (11, 9001), (14, 9001);
INSERT INTO orders (customer_id, id) VALUES (2, 9001), (5, 9002), (8, 9003) RETURNING *;
INSERT INTO orders (customer_id, id, total) VALUES (2, 9001, 1), (5, 9002, 2) RETURNING id * 2 AS twice, total;
INSERT INTO customers (id, name) VALUES (500, 'New'), (501, 'Newer'), (502, 'Newest');
INSERT INTO customers (id, name, tags, profile) VALUES (500, 'New', '{a,b}', '{"age": 1}'), (503, 'N', NULL, DEFAULT) RETURNING *;
INSERT INTO customers (id, name) VALUES (500 + 1, upper('x')), (600 - 1, 'y' || 'z');
INSERT INTO customers (id, name) VALUES ((SELECT max(id) + 1 FROM customers), 'next');
INSERT INTO customers (id, name) VALUES (700, (SELECT name FROM customers WHERE id = 2));
INSERT INTO customers (id, name, credit) VALUES (700, 'avg', (SELECT avg(total) FROM orders));
--@ error
INSERT INTO returns DEFAULT VALUES;
INSERT INTO returns (customer_id, id, amount) VALUES (2, 1, DEFAULT), (5, 1, 5);
INSERT INTO events VALUES ('dev-99', 'click', 1, NULL, NULL, 1.5, '{}'), ('dev-98', 'click', 1, 2, '2021-01-01', NULL, NULL);
INSERT INTO accounts (id, owner) VALUES ('11111111-1111-1111-1111-111111111111', 2), ('22222222-2222-2222-2222-222222222222', 5);
--@ count
INSERT INTO tickets (subject) VALUES ('one') RETURNING id;
INSERT INTO tickets (subject) VALUES ('one') RETURNING id, subject, open;
INSERT INTO tickets (subject) VALUES ('one'), ('two'), ('three') RETURNING id;
INSERT INTO tickets (id, subject) VALUES (5000, 'given'), (DEFAULT, 'made');
INSERT INTO tickets (id, subject) OVERRIDING SYSTEM VALUE VALUES (5000, 'given');
INSERT INTO tickets (subject, customer_id) SELECT name, id FROM customers WHERE vip ORDER BY id;
INSERT INTO audit (what, amount) VALUES ('x', 1) RETURNING id;
INSERT INTO audit (what, amount) VALUES ('x', 1), ('y', 2), ('z', NULL) RETURNING *;
INSERT INTO audit (what, customer_id) SELECT status, customer_id FROM orders ORDER BY id;
INSERT INTO audit (what, amount) SELECT 'total', sum(total) FROM orders;
INSERT INTO staff VALUES ('it', 100, 'New', 1, 100, NULL), ('ops', 101, 'Newer', NULL, NULL, NULL);
INSERT INTO staff (dept, id, name) SELECT 'sales', id + 1000, name FROM customers;
INSERT INTO calendar SELECT DISTINCT placed_at::date, 'order' FROM orders WHERE placed_at < '2020-02-01';
INSERT INTO countries VALUES ('zz', 'Zedland', 'Asia', 1);
INSERT INTO countries VALUES ('zz', 'Zedland', 'Asia', 1), ('zy', 'Zyland', NULL, NULL) RETURNING code;
INSERT INTO countries (code, name) SELECT DISTINCT lower(left(city, 2)) || '9', city FROM customers WHERE city = 'Kyoto';
INSERT INTO products (id, name, price) SELECT id + 1000, name, price * 2 FROM products;
INSERT INTO products (id, name) SELECT 2000 + count(*)::int, 'counted' FROM orders;
-- INSERT ... SELECT.
INSERT INTO returns SELECT customer_id, id, note, total FROM orders;
INSERT INTO returns SELECT customer_id, id, note, total FROM orders WHERE status = 'lost';
INSERT INTO returns SELECT customer_id, id, note, total FROM orders WHERE customer_id = 2;
INSERT INTO returns SELECT customer_id, id, note, total FROM orders ORDER BY id LIMIT 10;
INSERT INTO returns (customer_id, id) SELECT id, customer_id FROM orders;
INSERT INTO returns (customer_id, id) SELECT customer_id, count(*) FROM orders GROUP BY customer_id;
INSERT INTO returns (customer_id, id) SELECT id, seq FROM customers JOIN events ON customer_id = id;
INSERT INTO returns (customer_id, id, reason) SELECT c.id, o.id, c.name FROM customers c JOIN orders o ON o.customer_id = c.id WHERE c.vip;
INSERT INTO returns (customer_id, id) SELECT g, g FROM generate_series(1, 20) g;
INSERT INTO returns (customer_id, id) SELECT g, g FROM generate_series(1, 20) g RETURNING customer_id;
INSERT INTO returns (customer_id, id) VALUES (1, 1) RETURNING (SELECT count(*) FROM orders);
INSERT INTO returns (customer_id, id, amount) SELECT id, id, credit FROM customers RETURNING *;
INSERT INTO returns (customer_id, id) SELECT customer_id, id FROM audit WHERE customer_id IS NOT NULL;
INSERT INTO returns (customer_id, id) SELECT n_nationkey, n_regionkey FROM tpch.nation;
INSERT INTO returns (customer_id, id, reason) SELECT row_number() OVER (ORDER BY code), 1, code FROM countries WHERE population IS NOT NULL;
INSERT INTO orders (customer_id, id, status, total) SELECT customer_id, id + 10000, status, total FROM orders;
INSERT INTO customers (id, name) SELECT id + 10000, name FROM customers RETURNING id;
INSERT INTO events (device, kind, seq) SELECT 'copy', kind, seq FROM events;
INSERT INTO accounts (id, owner) SELECT md5(id::text)::uuid, id FROM customers;
INSERT INTO items (customer_id, order_id, line) SELECT customer_id, id, 99 FROM orders;
INSERT INTO returns (customer_id, id) SELECT id, 1 FROM customers UNION SELECT customer_id, 2 FROM orders;
INSERT INTO returns (customer_id, id) WITH q AS (SELECT customer_id, max(id) AS m FROM orders GROUP BY 1) SELECT customer_id, m FROM q;
WITH q AS (SELECT customer_id, id FROM orders WHERE total > 300) INSERT INTO returns (customer_id, id) SELECT * FROM q;
INSERT INTO returns AS r (customer_id, id) SELECT customer_id, id FROM big_orders;
-- ON CONFLICT.
INSERT INTO customers (id, name) VALUES (2, 'dup') ON CONFLICT DO NOTHING;
INSERT INTO customers (id, name) VALUES (2, 'dup'), (500, 'new'), (5, 'dup') ON CONFLICT DO NOTHING;
INSERT INTO customers (id, name) VALUES (2, 'dup'), (500, 'new') ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name RETURNING id, name;
INSERT INTO customers AS c (id, name, credit) VALUES (2, 'dup', 1), (5, 'dup', 2), (501, 'new', 3) ON CONFLICT (id) DO UPDATE SET credit = coalesce(c.credit, 0) + EXCLUDED.credit WHERE c.credit IS NOT NULL;
INSERT INTO customers (id, name) SELECT id + 3, name FROM customers ON CONFLICT DO NOTHING;
INSERT INTO customers (id, name) SELECT id + 3, 'moved' FROM customers ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name;
INSERT INTO orders (customer_id, id) VALUES (2, 1) ON CONFLICT ON CONSTRAINT orders_pkey DO NOTHING RETURNING id;
INSERT INTO orders (customer_id, id) SELECT customer_id, id FROM orders ON CONFLICT (customer_id, id) DO UPDATE SET note = 'again';
INSERT INTO countries VALUES ('de', 'Deutschland') ON CONFLICT (code) DO UPDATE SET name = EXCLUDED.name RETURNING *;
--@ error
INSERT INTO customers (id, name) VALUES (600, 'a'), (600, 'b') ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name;
--@ error
INSERT INTO customers (id, name) VALUES (2, 'dup') ON CONFLICT (name) DO NOTHING;
-- Into reference tables.
INSERT INTO countries (code, name, population) SELECT 'q' || id, name, (SELECT count(*) FROM orders) FROM customers WHERE id < 5 RETURNING code, population;
INSERT INTO countries (code, name) VALUES ('r1', (SELECT max(name) FROM customers)), ('r2', 'x') RETURNING code;
INSERT INTO countries (code, name) SELECT code, name || '!' FROM countries WHERE code IN ('de', 'fr') ON CONFLICT (code) DO UPDATE SET name = excluded.name, population = countries.population + 1;
INSERT INTO products (id, name) SELECT id, name FROM customers ON CONFLICT (id) DO NOTHING;
--@ error
INSERT INTO countries (code, name) SELECT country, name FROM customers WHERE country IS NOT NULL ON CONFLICT (code) DO UPDATE SET name = excluded.name;
--@ error
INSERT INTO customers (id, name) SELECT customer_id, 'x' FROM orders ON CONFLICT (id) DO UPDATE SET name = excluded.name;
INSERT INTO customers (id, name) SELECT DISTINCT customer_id, 'x' FROM events WHERE customer_id IS NOT NULL ON CONFLICT (id) DO UPDATE SET name = excluded.name || customers.name RETURNING id;
INSERT INTO tickets (subject) VALUES ('v') RETURNING subject, (SELECT count(*) FROM tickets);
