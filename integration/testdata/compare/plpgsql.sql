CREATE TABLE audit (n serial, what text, old jsonb, new jsonb);
CREATE TABLE things (id int PRIMARY KEY, v text);
CREATE FUNCTION log_it() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (what, old, new) VALUES (TG_OP, to_jsonb(OLD), to_jsonb(NEW));
    RAISE NOTICE '% on % (%)', TG_OP, TG_TABLE_NAME, TG_WHEN;
    RETURN NULL;
END $$;
CREATE TRIGGER log_it AFTER INSERT OR UPDATE OR DELETE ON things FOR EACH ROW EXECUTE FUNCTION log_it();
INSERT INTO things VALUES (1, 'a'), (2, 'b');
UPDATE things SET v = 'c' WHERE id = 1;
DELETE FROM things WHERE id = 2;
SELECT * FROM audit ORDER BY n;
CREATE FUNCTION fact(n int) RETURNS numeric LANGUAGE plpgsql AS $$ BEGIN IF n <= 1 THEN RETURN 1; END IF; RETURN n * fact(n - 1); END $$;
SELECT fact(20), fact(0);
CREATE FUNCTION many(n int, OUT i int, OUT s text) RETURNS SETOF record LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1..n LOOP s := repeat('x', i); RETURN NEXT; END LOOP; END $$;
SELECT * FROM many(3);
SELECT (many(2)).*;
DO $$
DECLARE r record; total int := 0;
BEGIN
    FOR r IN SELECT * FROM many(4) LOOP
        total := total + r.i;
        CONTINUE WHEN r.i = 2;
        RAISE NOTICE 'row %: %', r.i, r.s;
    END LOOP;
    RAISE WARNING 'total %', total USING HINT = 'just so', DETAIL = 'more';
    BEGIN
        PERFORM 1 / 0;
    EXCEPTION WHEN division_by_zero THEN
        RAISE NOTICE 'caught % %', SQLSTATE, SQLERRM;
    END;
    ASSERT total = 10, 'wrong total';
END $$;
DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = 'P1234', DETAIL = 'detail', HINT = 'hint'; END $$;
DO $$ BEGIN EXECUTE 'SELECT * FROM not_there'; END $$;
DO LANGUAGE plpgsql $$ BEGIN RAISE LOG 'not shown'; RAISE INFO 'shown'; RAISE DEBUG 'not shown'; END $$;
SET client_min_messages = debug1;
DO $$ BEGIN RAISE DEBUG 'shown now'; END $$;
RESET client_min_messages;
CREATE PROCEDURE step(INOUT n int) LANGUAGE plpgsql AS $$ BEGIN n := n + 1; END $$;
CALL step(5);
CREATE PROCEDURE batches() LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 10..14 LOOP
        INSERT INTO things VALUES (i, 'batch');
        IF i % 2 = 0 THEN COMMIT; ELSE ROLLBACK; END IF;
    END LOOP;
END $$;
CALL batches();
SELECT id FROM things ORDER BY id;
BEGIN;
CALL batches();
ROLLBACK;
CREATE FUNCTION dyn(t regclass, VARIADIC cols text[]) RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE n bigint; BEGIN EXECUTE format('SELECT count(%s) FROM %s', array_to_string(cols, ','), t) INTO STRICT n; RETURN n; END $$;
SELECT dyn('things', 'id');
SELECT dyn('things', 'nothing');
CREATE FUNCTION poly(anyelement, anyelement) RETURNS anyarray LANGUAGE sql AS 'SELECT ARRAY[$1, $2]';
SELECT poly(1, 2), poly('a'::text, 'b');
SELECT poly(1, 'x'::text);
CREATE FUNCTION broken() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 1 END $$;
CREATE FUNCTION deep(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN IF n = 0 THEN RAISE 'bottom'; END IF; RETURN deep(n - 1); END $$;
SELECT deep(2);
CREATE FUNCTION stable_sum() RETURNS bigint STABLE LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM things; END;
SELECT stable_sum();
\sf fact
\df
\df+ poly
DROP FUNCTION fact(int);
DROP FUNCTION fact(int);
CREATE EVENT TRIGGER watch ON ddl_command_end EXECUTE FUNCTION log_it();
DROP TABLE things, audit;
CREATE AGGREGATE joined(text) (SFUNC = textcat, STYPE = text, INITCOND = '');
SELECT joined(x ORDER BY x) FROM unnest(ARRAY['b', 'a']) x;
CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);
SELECT 1 === 1, 1 === 2;
