CREATE TABLE p (id int PRIMARY KEY, v text);
INSERT INTO p SELECT i, 'v' || i FROM generate_series(1, 10) i;
PREPARE one (int) AS SELECT * FROM p WHERE id = $1;
EXECUTE one (3);
EXECUTE one (1 + 3);
EXECUTE one ('5');
EXECUTE one;
EXECUTE one (1, 2);
EXECUTE one ('x');
PREPARE one AS SELECT 1;
PREPARE ins (int, text) AS INSERT INTO p VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET v = excluded.v || '!' RETURNING *;
EXECUTE ins (11, 'new');
EXECUTE ins (11, 'again');
PREPARE untyped AS SELECT $1::int + 1, $2 || 'x';
EXECUTE untyped (1, 'y');
SELECT name, statement, parameter_types, from_sql FROM pg_prepared_statements ORDER BY name;
ALTER TABLE p ADD COLUMN extra int DEFAULT 7;
EXECUTE one (3);
EXECUTE ins (12, 'after');
DROP TABLE p CASCADE;
EXECUTE one (3);
DEALLOCATE one;
EXECUTE one (3);
DEALLOCATE ALL;
SELECT count(*) FROM pg_prepared_statements;
PREPARE t AS SELECT 1;
BEGIN;
DEALLOCATE t;
ROLLBACK;
EXECUTE t;
PREPARE v AS VALUES (1), (2);
EXECUTE v;
CREATE TABLE from_prepared AS EXECUTE v;
SELECT * FROM from_prepared;
EXPLAIN (COSTS OFF) EXECUTE v;
SELECT 1 AS a, 'x'::text AS b, now() AS c \gdesc
SELECT 5 AS five, 'six' AS six \gset
SELECT :five + 1, :'six', :"six" FROM (SELECT 1 AS six) x;
SELECT format('SELECT %s AS n', i) FROM generate_series(1, 2) i \gexec
SELECT 1 AS x \gx
SELECT i / 3 AS r, i % 3 AS c, i * i AS v FROM generate_series(0, 8) i \crosstabview
\if true
\echo yes
\else
\echo no
\endif
\set one_stmt 'SELECT 42 AS answer;'
:one_stmt
SELECT 'bytes' AS f \g (format=unaligned)
DISCARD PLANS;
DISCARD ALL;
