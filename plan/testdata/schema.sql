-- The tables of the golden plans. Distribution 1 is by bigint, 2 by text, 3 by uuid, 4 by numeric,
-- 5 by date, 6 by timestamptz, 7 by char(n).
CREATE TABLE orders (customer_id bigint NOT NULL, id bigserial, total numeric(10,2), note text, at timestamptz DEFAULT now(),
    PRIMARY KEY (customer_id, id));
CREATE TABLE lines (customer_id int NOT NULL, order_id bigint, id bigint, product_id int, amount int, PRIMARY KEY (customer_id, order_id, id));
CREATE TABLE customers (id bigserial PRIMARY KEY, name text, email text, country text);
CREATE TABLE users (email text PRIMARY KEY, name text, customer_id bigint);
CREATE TABLE short_names (name varchar(5) PRIMARY KEY, v int);
CREATE TABLE events (id uuid DEFAULT gen_random_uuid() PRIMARY KEY, kind text, v int);
CREATE TABLE prices (amount numeric(10,2) PRIMARY KEY, v int);
CREATE TABLE days (day date PRIMARY KEY, v int);
CREATE TABLE stamps (at timestamptz PRIMARY KEY, v int);
CREATE TABLE codes (code char(4) PRIMARY KEY, v int);
CREATE TABLE always (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int);
CREATE TABLE parts (customer_id bigint NOT NULL, at date NOT NULL, v int) PARTITION BY RANGE (at);
CREATE TABLE parts_2024 PARTITION OF parts FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
CREATE TABLE "Odd Name" ("Key" bigint PRIMARY KEY, "select" text);
CREATE SCHEMA other; CREATE TABLE other.orders (customer_id bigint, id bigint, v int);
CREATE DOMAIN short AS varchar(3); CREATE DOMAIN customer AS bigint CHECK (VALUE > 0);
CREATE TABLE by_domain (k customer PRIMARY KEY, v int);
CREATE TABLE by_short (k short PRIMARY KEY, v int);
CREATE TABLE countries (code text PRIMARY KEY, name text, changed timestamptz DEFAULT now());
CREATE TABLE products (id bigserial PRIMARY KEY, name text, price numeric);
CREATE TABLE settings (name text PRIMARY KEY, value text);
CREATE TABLE audit (id bigserial PRIMARY KEY, what text);
CREATE TABLE ruled (a int); CREATE RULE r AS ON INSERT TO ruled DO ALSO INSERT INTO audit(what) VALUES ('x');

SELECT pg_shoal.set_table(t, 'distributed', d, ARRAY[k]::name[]) FROM (VALUES ('orders'::regclass, 1, 'customer_id'),
    ('lines', 1, 'customer_id'), ('customers', 1, 'id'), ('users', 2, 'email'), ('short_names', 2, 'name'), ('events', 3, 'id'),
    ('prices', 4, 'amount'), ('days', 5, 'day'), ('stamps', 6, 'at'), ('codes', 7, 'code'), ('always', 1, 'id'), ('parts', 1, 'customer_id'),
    ('"Odd Name"', 1, 'Key'), ('by_domain', 1, 'k'), ('by_short', 2, 'k')) x(t, d, k);
-- Distribution 8 is by the hash of two columns, 9 by a range of time, 10 by region and hash, 11 by hash and range,
-- 12 by a range of text, 13 by region alone, 14 by directory, 15 by schema, 16 by a range of two columns, 17 by
-- region, hash and range.
CREATE TABLE pairs (a bigint NOT NULL, b int NOT NULL, v int, PRIMARY KEY (a, b));
CREATE TABLE visits (at timestamptz NOT NULL DEFAULT now(), page text, v int);
CREATE TABLE people (country text NOT NULL, id bigint NOT NULL, name text, PRIMARY KEY (country, id));
CREATE TABLE metrics (tenant bigint NOT NULL, at timestamptz NOT NULL DEFAULT now(), name text, v numeric, PRIMARY KEY (tenant, at, name));
CREATE TABLE readings (tenant int NOT NULL, at timestamptz NOT NULL, v numeric);
CREATE TABLE words (word text COLLATE "C" PRIMARY KEY, v int);
CREATE TABLE other_words (word text COLLATE "und-x-icu" PRIMARY KEY, v int);
CREATE TABLE shops (region text PRIMARY KEY, v int);
CREATE TABLE accounts (name text PRIMARY KEY, v int);
CREATE SCHEMA tenant_1; CREATE TABLE tenant_1.notes (id int PRIMARY KEY, v text); CREATE TABLE tenant_1.tags (id int, note int);
CREATE SCHEMA tenant_3; CREATE TABLE tenant_3.notes (id int PRIMARY KEY, v text);
CREATE TABLE steps (a int NOT NULL, b bigint NOT NULL, c int, PRIMARY KEY (a, b));
CREATE TABLE sales (region text NOT NULL, tenant bigint NOT NULL, at timestamptz NOT NULL DEFAULT now(), v int);
SELECT pg_shoal.set_table(t, 'distributed', d, k::name[]) FROM (VALUES ('pairs'::regclass, 8, '{a,b}'), ('visits', 9, '{at}'),
    ('people', 10, '{country,id}'), ('metrics', 11, '{tenant,at}'), ('readings', 11, '{tenant,at}'), ('words', 12, '{word}'),
    ('other_words', 12, '{word}'), ('shops', 13, '{region}'), ('accounts', 14, '{name}'), ('steps', 16, '{a,b}'),
    ('sales', 17, '{region,tenant,at}')) x(t, d, k);
SELECT pg_shoal.set_table('countries', 'reference', NULL, NULL), pg_shoal.set_table('products', 'reference', NULL, NULL);

CREATE VIEW big_orders AS SELECT customer_id AS customer, id, total FROM orders WHERE total > 100;
CREATE VIEW totals AS SELECT customer_id, sum(total) AS total, count(*) AS n FROM orders GROUP BY customer_id;
CREATE VIEW all_totals AS SELECT sum(total) AS total FROM orders;
CREATE VIEW named_totals AS SELECT c.id, c.name, t.total FROM customers c LEFT JOIN totals t ON t.customer_id = c.id;
CREATE VIEW country_names AS SELECT code, name FROM countries;
CREATE VIEW both_sides AS SELECT customer_id, id FROM orders UNION ALL SELECT customer_id, order_id FROM lines;
CREATE VIEW twice AS SELECT customer_id AS a, customer_id AS b, note FROM orders;
CREATE VIEW latest AS SELECT DISTINCT ON (customer_id) customer_id, id FROM orders ORDER BY customer_id, id DESC;
CREATE VIEW ranked AS SELECT customer_id, id, rank() OVER (ORDER BY total) AS r FROM orders;
CREATE VIEW setting_names AS SELECT name FROM settings;
CREATE MATERIALIZED VIEW country_list AS SELECT code FROM countries;

CREATE FUNCTION plus_one(a bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT a + 1';
CREATE FUNCTION order_count() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM orders';
CREATE FUNCTION indirect() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN order_count(); END';
CREATE FUNCTION setting(n text) RETURNS text LANGUAGE sql STABLE AS 'SELECT value FROM settings WHERE name = n';
CREATE FUNCTION country(c text) RETURNS text LANGUAGE sql STABLE AS 'SELECT name FROM countries WHERE code = c';
CREATE FUNCTION any_sql(q text) RETURNS void LANGUAGE plpgsql AS 'BEGIN EXECUTE q; END';
CREATE FUNCTION new_country(c text) RETURNS void LANGUAGE sql AS 'INSERT INTO countries(code) VALUES (c)';
CREATE FUNCTION log_order() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM FROM orders; RETURN NEW; END';
CREATE FUNCTION tell() RETURNS void LANGUAGE sql AS $$ SELECT pg_notify('a', 'b') $$;
CREATE PROCEDURE make_table() LANGUAGE plpgsql AS 'BEGIN CREATE TABLE made (a int); END';
CREATE PROCEDURE log_it() LANGUAGE sql AS $$ INSERT INTO audit(what) VALUES ('x') $$;
CREATE TABLE triggered (a int); CREATE TRIGGER tg AFTER INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION log_order();
