CREATE TABLE c (id int, t text, d date DEFAULT '2024-01-01', n numeric);
COPY c FROM STDIN;
1	plain	2024-05-06	1.5
2	with\ttab and \\ backslash\nnewline	\N	\N
3		2024-05-06	0
\.
SELECT * FROM c ORDER BY id;
COPY c (id, t) FROM STDIN WITH (FORMAT csv, HEADER true, NULL 'nil');
id,t
4,"quoted, ""text"""
5,nil
6,""
\.
COPY c (id, t) FROM STDIN CSV DELIMITER ';' QUOTE '''';
7;'it''s'
\.
COPY c TO STDOUT;
COPY c TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE (t), NULL 'NULL');
COPY (SELECT id, upper(t) FROM c WHERE id < 4 ORDER BY id) TO STDOUT WITH DELIMITER '|' NULL '-';
COPY (VALUES (1, E'a\nb'), (2, NULL)) TO STDOUT;
COPY (INSERT INTO c (id) VALUES (8) RETURNING id, d) TO STDOUT;
COPY c FROM STDIN;
9	ok	2024-01-01	1
x	bad	2024-01-01	1
\.
COPY c FROM STDIN;
9	too few
\.
COPY c FROM STDIN;
9	too	2024-01-01	1	many
\.
COPY c FROM STDIN (FORMAT csv);
9,"unterminated
\.
SELECT count(*) FROM c;
COPY c FROM STDIN WHERE id > 100;
50	skipped	2024-01-01	1
150	kept	2024-01-01	1
\.
SELECT id FROM c WHERE id > 40;
\copy (SELECT id FROM c ORDER BY id LIMIT 2) TO STDOUT
\copy c (id, t) FROM STDIN
200	by psql
\.
\copy c TO '/dev/null'
SELECT t FROM c WHERE id = 200;
BEGIN;
COPY c (id) FROM STDIN;
300
301
\.
SELECT count(*) FROM c WHERE id >= 300;
ROLLBACK;
SELECT count(*) FROM c WHERE id >= 300;
BEGIN;
COPY c (id) FROM STDIN;
bad
\.
SELECT 1;
ROLLBACK;
CREATE VIEW cv AS SELECT id FROM c;
COPY cv TO STDOUT;
COPY (SELECT * FROM cv WHERE id = 1) TO STDOUT;
COPY c TO STDOUT (FORMAT nope);
COPY c FROM STDIN (HEADER match, FORMAT csv);
id,t,d,wrong
1,2,2024-01-01,4
\.
COPY c (id, t) TO STDOUT (ENCODING 'latin1');
COPY c FROM STDIN (FREEZE);
400	x	\N	\N
\.
CREATE TABLE gen (a int, b int GENERATED ALWAYS AS (a * 2) STORED);
COPY gen FROM STDIN;
21
\.
COPY gen TO STDOUT;
COPY gen (a, b) TO STDOUT;
TRUNCATE c;
COPY c TO STDOUT;
COPY c FROM STDIN;
\.
SELECT count(*) FROM c;
