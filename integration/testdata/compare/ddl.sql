CREATE TABLE authors (id serial PRIMARY KEY, name text NOT NULL, born date, CONSTRAINT grown CHECK (born < '2020-01-01'));
CREATE TABLE books (
    isbn varchar(17) PRIMARY KEY,
    author int NOT NULL REFERENCES authors ON UPDATE CASCADE ON DELETE SET NULL,
    title text COLLATE "C",
    price numeric(8,2) DEFAULT 9.99,
    pages smallint,
    words bigint GENERATED ALWAYS AS (pages * 300) STORED,
    UNIQUE (author, title)
);
\d authors
\d books
\d+ books
CREATE INDEX books_price ON books (price DESC NULLS LAST) INCLUDE (title) WHERE price > 5;
CREATE UNIQUE INDEX ON books (lower(title));
ALTER TABLE books ADD COLUMN extra jsonb DEFAULT '{"a": 1}' NOT NULL;
ALTER TABLE books ALTER COLUMN pages TYPE int, ALTER COLUMN pages SET DEFAULT 100;
ALTER TABLE books DROP COLUMN words;
ALTER TABLE books ALTER COLUMN pages TYPE bigint;
ALTER TABLE books RENAME COLUMN extra TO more;
ALTER TABLE books RENAME CONSTRAINT books_author_fkey TO written_by;
ALTER TABLE books ALTER CONSTRAINT written_by DEFERRABLE INITIALLY DEFERRED;
\d books
INSERT INTO authors (name) VALUES ('Ann'), ('Bob') RETURNING *;
INSERT INTO books (isbn, author, title) VALUES ('1', 1, 'One'), ('2', 2, 'Two') RETURNING isbn, price, more;
INSERT INTO books (isbn, author, title) VALUES ('3', 99, 'None');
BEGIN;
INSERT INTO books (isbn, author, title) VALUES ('3', 99, 'None');
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK;
CREATE TABLE copy_of (LIKE books INCLUDING ALL);
\d copy_of
CREATE TABLE made AS SELECT author, count(*) AS n FROM books GROUP BY author ORDER BY author;
SELECT * FROM made;
CREATE TABLE IF NOT EXISTS made (a int);
DROP TABLE IF EXISTS nothing_there;
CREATE UNLOGGED TABLE quick (a int);
\dt
CREATE SCHEMA other CREATE TABLE inside (a int PRIMARY KEY) CREATE VIEW looking AS SELECT a FROM inside;
\dt other.*
\dn
ALTER TABLE made SET SCHEMA other;
ALTER TABLE other.made RENAME TO remade;
SET search_path TO other, public;
\dt
TRUNCATE remade;
SELECT count(*) FROM remade;
RESET search_path;
CREATE SEQUENCE s AS smallint INCREMENT 3 MINVALUE 2 MAXVALUE 8 CYCLE;
SELECT nextval('s'), nextval('s'), nextval('s'), nextval('s');
\d s
ALTER SEQUENCE s RESTART WITH 5;
SELECT nextval('s');
COMMENT ON TABLE books IS 'Things to read';
COMMENT ON COLUMN books.isbn IS 'the number';
\dt+ nothing
\d+ authors
CREATE STATISTICS st (dependencies) ON author, title FROM books;
ANALYZE books;
CREATE INDEX CONCURRENTLY slow ON books (pages);
REINDEX INDEX CONCURRENTLY slow;
VACUUM books;
BEGIN;
CREATE INDEX CONCURRENTLY slower ON books (pages);
ROLLBACK;
DROP INDEX slow;
DROP TABLE authors;
DROP TABLE authors CASCADE;
\d books
DROP SCHEMA other;
DROP SCHEMA other CASCADE;
ALTER TABLE books DROP CONSTRAINT nothing;
ALTER TABLE books ADD CONSTRAINT cheap CHECK (price < 5);
ALTER TABLE books ADD CONSTRAINT cheap CHECK (price < 5) NOT VALID;
ALTER TABLE books VALIDATE CONSTRAINT cheap;
CREATE EXTENSION IF NOT EXISTS pg_trgm;
\dx pg_trgm
SELECT similarity('pgshoal', 'shoal') > 0.3;
DROP EXTENSION pg_trgm;
