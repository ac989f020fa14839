CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE span AS RANGE (subtype = float8, subtype_diff = float8mi);
CREATE TABLE everything (
    i2 smallint, i4 int, i8 bigint, n numeric(20,5), nn numeric, f4 real, f8 double precision, m money,
    t text, vc varchar(10), c char(5), nm name, ba bytea, ts timestamp, tz timestamptz(3), d date, tm time, tmz timetz, iv interval,
    b bool, md mood, pt point, ls lseg, bx box, pa path, pg polygon, ci circle, ip inet, cd cidr, mac macaddr,
    bi bit(3), vb varbit(8), tv tsvector, tq tsquery, u uuid, x xml, j json, jb jsonb, ia int[], ta text[][], cp pair, dm positive, ir int4range, sp span, dr daterange, mr int4multirange
);
INSERT INTO everything VALUES (
    -32768, 2147483647, -9223372036854775808, 12345.678, 'NaN', 1.5e10, 'Infinity', '$1,234.56',
    E'tab\there\nand ünïcode ☃', 'short', 'ab', 'aName', '\xdeadbeef00', '2024-02-29 12:34:56.789', '2024-02-29 12:34:56.7891+05:30', '0044-03-15 BC', '23:59:59.999999', '12:00:00-08', '1 year 2 mons -3 days 04:05:06.7',
    true, 'happy', '(1,2)', '[(0,0),(1,1)]', '(1,1),(0,0)', '[(0,0),(1,0),(1,1)]', '((0,0),(1,0),(1,1))', '<(0,0),5>', '192.168.0.1/24', '10.0.0.0/8', '08:00:2b:01:02:03',
    B'101', B'11', 'the quick fox'::tsvector, 'fat & rat', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '<a>b</a>', '{"b":1, "a": [1,2]}', '{"b":1, "a": [1,2]}', '{1,NULL,3}', '{{a,"b c"},{NULL,"q\"q"}}', '(1,"x y")', 7, '[1,10)', '[1.5,2.5]', '[2024-01-01,2024-02-01)', '{[1,3),[5,7)}'
);
INSERT INTO everything DEFAULT VALUES;
\x on
SELECT * FROM everything;
\x off
\pset null '(null)'
SELECT i2, i4, t FROM everything;
\pset null ''
SELECT pg_typeof(i2), pg_typeof(n), pg_typeof(cp), pg_typeof(md), pg_typeof(ir) FROM everything LIMIT 1;
SELECT i4 + 1 FROM everything;
SELECT i2 - 1::smallint FROM everything;
SELECT n::int, n::numeric(10,1), f8 > n, m * 2 FROM everything WHERE i2 IS NOT NULL;
SELECT 'x'::mood;
SELECT (-1)::positive;
SELECT '300'::smallint::"char", 'abc'::char(2), 'abc'::varchar(2);
INSERT INTO everything (vc) VALUES ('much too long a text');
SELECT 1/3::numeric, 1.0/3, 10^-3, 2::float8/3, 1e400::numeric > 0, 'nan'::float4;
SELECT 1e400::float8;
SELECT date '2024-01-31' + interval '1 month', timestamptz '2024-03-10 02:30 America/New_York', age(date '2024-02-29', date '2000-01-01');
SELECT to_char(timestamp '2024-02-29 13:14:15', 'Day, DDth Mon YYYY HH12:MI am'), to_number('1,234.5', '9,999.9'), to_date('29 Feb 2024', 'DD Mon YYYY');
SELECT extract(epoch FROM timestamptz '2001-09-09 01:46:40+00'), date_trunc('quarter', timestamp '2024-05-06'), date_bin('15 min', timestamp '2024-01-01 10:37', '2024-01-01');
SELECT ARRAY[1,2,3] || 4, ARRAY[[1,2],[3,4]][2][1], array_agg(x ORDER BY x DESC), array_to_string(ARRAY['a',NULL,'b'], ',', '*') FROM unnest(ARRAY[1,2]) x;
SELECT unnest('{{1,2},{3,4}}'::int[]), generate_subscripts('{5,6,7,8}'::int[], 1);
SELECT (cp).a, (cp).b, cp = ROW(1, 'x y')::pair, row_to_json(cp) FROM everything WHERE cp IS NOT NULL;
SELECT jb -> 'a' -> 0, jb ->> 'b', jb @> '{"b": 1}', jb #> '{a,1}', jsonb_set(jb, '{c}', '"new"'), jb - 'a' FROM everything WHERE jb IS NOT NULL;
SELECT * FROM jsonb_to_recordset('[{"a":1,"b":"x"},{"a":2}]') AS t(a int, b text);
SELECT * FROM jsonb_path_query('{"a": [1, 2, 3]}', '$.a[*] ? (@ > 1)');
SELECT jsonb_pretty('{"a": {"b": [1, 2]}}');
SELECT int4range(1, 5) * int4range(3, 8), int4range(1, 5) @> 4, lower(int4range(1,5)), isempty('empty'::int4range), range_agg(r) FROM (VALUES (int4range(1,3)), (int4range(2,6))) v(r);
SELECT inet '10.1.2.3' << inet '10.0.0.0/8', host(inet '10.1.2.3/8'), broadcast(cidr '10.1.0.0/16');
SELECT encode('\x00ff'::bytea, 'base64'), decode('AP8=', 'base64'), md5('x'), sha256('x'), length('ünïcode'), octet_length('ünïcode');
SELECT 'abc' ~ '^a.c$', regexp_replace('foobarbaz', 'b..', 'X', 'g'), regexp_matches('a1b22', '\d+', 'g'), substring('foobar' from 'o(.)b'), split_part('a,b,c', ',', 2);
SELECT to_tsvector('english', 'The quick brown foxes jumped'), to_tsvector('english', 'foxes') @@ to_tsquery('english', 'fox'), ts_headline('english', 'quick foxes', to_tsquery('fox'));
SELECT xpath('/a/text()', '<a>b</a>'), xmlelement(name foo, 'bar');
SELECT format('%I %L %s %%', 'Odd Name', 'it''s', NULL), quote_nullable(NULL), quote_ident('select'), E'\x41\u00e9', U&'\0041', $tag$dollar 'quoted'$tag$, B'1010' | B'0101', X'1F';
SET bytea_output = 'escape'; SELECT '\xdeadbeef00'::bytea; RESET bytea_output;
SET intervalstyle = 'iso_8601'; SELECT interval '1 year 2 days 3:04:05'; RESET intervalstyle;
SET extra_float_digits = 0; SELECT 0.1::float8 + 0.2::float8; RESET extra_float_digits;
ALTER TYPE mood ADD VALUE 'great' AFTER 'happy';
SELECT enum_range(NULL::mood), 'great'::mood > 'sad'::mood;
ALTER TYPE pair ADD ATTRIBUTE c date;
SELECT NULL::pair, ROW(1,'a',NULL)::pair;
\dT
\dD
DROP TYPE mood;
