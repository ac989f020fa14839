CREATE SCHEMA shop;
CREATE TYPE shop.state AS ENUM ('new', 'paid', 'sent');
CREATE DOMAIN shop.email AS text CHECK (VALUE LIKE '%@%');
CREATE TABLE shop.customers (
    id bigserial PRIMARY KEY,
    mail shop.email UNIQUE NOT NULL,
    tags text[] DEFAULT '{}',
    about jsonb,
    since timestamptz DEFAULT '2020-01-01 00:00:00+00'
);
CREATE TABLE shop.orders (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer bigint NOT NULL REFERENCES shop.customers ON DELETE CASCADE,
    state shop.state NOT NULL DEFAULT 'new',
    total numeric(12, 2) CHECK (total >= 0),
    blob bytea,
    doubled numeric GENERATED ALWAYS AS (total * 2) STORED
);
CREATE INDEX orders_open ON shop.orders (customer) WHERE state <> 'sent';
CREATE TABLE shop.log (at date NOT NULL, line text) PARTITION BY RANGE (at);
CREATE TABLE shop.log_2024 PARTITION OF shop.log FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
CREATE TABLE shop.log_rest PARTITION OF shop.log DEFAULT;
CREATE VIEW shop.totals AS SELECT customer, sum(total) AS total FROM shop.orders GROUP BY customer;
CREATE MATERIALIZED VIEW shop.counts AS SELECT count(*) AS n FROM shop.customers;
CREATE FUNCTION shop.touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.since := '2021-01-01 00:00:00+00'; RETURN NEW; END $$;
CREATE TRIGGER touch BEFORE UPDATE ON shop.customers FOR EACH ROW EXECUTE FUNCTION shop.touch();
CREATE FUNCTION shop.add(a int, b int DEFAULT 1) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT a + b';
CREATE SEQUENCE shop.ticket START 100 INCREMENT 7;
COMMENT ON TABLE shop.customers IS 'who buys; it''s "quoted"';
INSERT INTO shop.customers (mail, tags, about)
    SELECT 'c' || i || '@example.com', ARRAY['t' || i, E'tab\there'], jsonb_build_object('n', i) FROM generate_series(1, 500) i;
INSERT INTO shop.orders (customer, state, total, blob)
    SELECT 1 + i % 500, (ARRAY['new', 'paid', 'sent'])[1 + i % 3]::shop.state, i * 1.25, decode(md5(i::text), 'hex') FROM generate_series(1, 2000) i;
INSERT INTO shop.log SELECT '2023-06-01'::date + i, E'line ' || i || E'\nwith a break' FROM generate_series(1, 400) i;
REFRESH MATERIALIZED VIEW shop.counts;
SELECT nextval('shop.ticket') \gset
SELECT lo_from_bytea(990001, decode(repeat('00ff10', 3000), 'hex')), lo_create(990002) \gset
COMMENT ON LARGE OBJECT 990001 IS 'a picture';
ALTER LARGE OBJECT 990002 OWNER TO CURRENT_USER;
GRANT SELECT ON LARGE OBJECT 990001 TO PUBLIC;
