-- The pg_shoal schema of a node, in numbered steps. A step that was released is never edited:
-- what changes later is a further step. {router} is the quoted name of the routers' own role.

-- step 1
CREATE SCHEMA pg_shoal;
GRANT USAGE ON SCHEMA pg_shoal TO PUBLIC;
COMMENT ON SCHEMA pg_shoal IS 'pgshoal: what a node knows about its cluster';

CREATE TABLE pg_shoal.version (
    step    integer PRIMARY KEY,
    digest  text NOT NULL, -- of the step's text: a build with another text under the same number is not this one
    applied timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE pg_shoal.node (
    cluster text NOT NULL,
    name    text NOT NULL,
    id      integer NOT NULL CHECK (id BETWEEN 0 AND 32766),
    home    boolean NOT NULL
);
CREATE UNIQUE INDEX node_is_one_row ON pg_shoal.node ((true));
GRANT SELECT ON pg_shoal.version, pg_shoal.node TO PUBLIC;

-- Which tables are not local. Keyed by OID, so that a rename is no change at all and a rollback
-- takes the row with it.
CREATE TABLE pg_shoal.tables (
    relid        oid PRIMARY KEY,
    kind         text NOT NULL CHECK (kind IN ('distributed', 'reference')),
    distribution bigint,
    key_columns  int2[] NOT NULL DEFAULT '{}',
    CHECK ((kind = 'distributed') = (distribution IS NOT NULL)),
    CHECK ((kind = 'distributed') = (cardinality(key_columns) > 0))
);
GRANT SELECT ON pg_shoal.tables TO PUBLIC;

-- Schemas whose tables live together on one node. An entry is a point of the distribution, shifted so that it
-- has bigint's order. A table of the schema needs no row in pg_shoal.tables; one that has a row there is placed by that.
CREATE TABLE pg_shoal.schemas (
    nspid        oid PRIMARY KEY,
    distribution bigint NOT NULL,
    entry        bigint NOT NULL
);

-- All tables that are not local; nspid is set for those that are placed by their schema.
CREATE VIEW pg_shoal.placed AS
    SELECT t.relid, t.kind, t.distribution, t.key_columns, NULL::oid AS nspid, NULL::bigint AS entry FROM pg_shoal.tables t
    UNION ALL
    SELECT c.oid, 'distributed', s.distribution, '{}', s.nspid, s.entry
    FROM pg_shoal.schemas s
    JOIN pg_catalog.pg_class c ON c.relnamespace = s.nspid
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
      AND NOT EXISTS (SELECT FROM pg_shoal.tables t WHERE t.relid = c.oid);
GRANT SELECT ON pg_shoal.schemas, pg_shoal.placed TO PUBLIC;

-- The entries of directories: which point a key has. It is itself a distributed table, by the hash of the key, so a node
-- has some of them. A key is in its ordered encoding, an entry as in pg_shoal.schemas. Routers write it on their own,
-- before a new key's first row: an entry without rows does no harm.
CREATE TABLE pg_shoal.directory (
    distribution bigint NOT NULL,
    key          bytea NOT NULL,
    entry        bigint NOT NULL,
    PRIMARY KEY (distribution, key)
);
GRANT SELECT, INSERT ON pg_shoal.directory TO {router};

-- Makes the table of entries a distributed one.
CREATE FUNCTION pg_shoal.place_directory(distribution bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO pg_shoal.tables AS t
        SELECT a.attrelid, 'distributed', place_directory.distribution, ARRAY[a.attnum] FROM pg_attribute a
        WHERE a.attrelid = 'pg_shoal.directory'::regclass AND a.attname = 'key'
        ON CONFLICT (relid) DO UPDATE SET distribution = excluded.distribution WHERE t.distribution <> excluded.distribution
$$;

CREATE FUNCTION pg_shoal.check_owner(rel oid) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    owner oid;
BEGIN
    SELECT relowner INTO owner FROM pg_class WHERE oid = rel;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'relation with OID % does not exist', rel USING ERRCODE = 'undefined_table';
    END IF;
    -- session_user, because the callers run as their owner: that makes current_user say nothing.
    IF NOT pg_has_role(session_user, owner, 'MEMBER') THEN
        RAISE EXCEPTION 'must be owner of table %', rel::regclass USING ERRCODE = 'insufficient_privilege';
    END IF;
END
$$;

CREATE FUNCTION pg_shoal.set_table(rel regclass, kind text, distribution bigint, key_columns name[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    nums int2[];
    missing name;
BEGIN
    PERFORM pg_shoal.check_owner(rel);
    PERFORM FROM pg_class c WHERE c.oid = rel AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
        AND c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'pg_shoal'::regnamespace, 'information_schema'::regnamespace);
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is not an ordinary or partitioned table', rel
            USING ERRCODE = 'wrong_object_type',
                  HINT = 'Views, foreign, temporary and system tables stay where they are.';
    END IF;
    SELECT k INTO missing FROM unnest(key_columns) k
        WHERE NOT EXISTS (SELECT FROM pg_attribute a
            WHERE a.attrelid = rel AND a.attname = k AND a.attnum > 0 AND NOT a.attisdropped);
    IF FOUND THEN
        RAISE EXCEPTION 'column % of relation % does not exist', quote_ident(missing), rel
            USING ERRCODE = 'undefined_column';
    END IF;
    SELECT array_agg(a.attnum ORDER BY k.n) INTO nums
        FROM unnest(key_columns) WITH ORDINALITY k(name, n)
        JOIN pg_attribute a ON a.attrelid = rel AND a.attname = k.name;
    INSERT INTO pg_shoal.tables AS t VALUES (rel, kind, distribution, coalesce(nums, '{}'))
        ON CONFLICT (relid) DO UPDATE
        SET kind = excluded.kind, distribution = excluded.distribution, key_columns = excluded.key_columns;
END
$$;

CREATE FUNCTION pg_shoal.unset_table(rel regclass) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_shoal.check_owner(rel);
    DELETE FROM pg_shoal.tables WHERE relid = rel;
END
$$;

-- Reads the entries of some keys. A change of the directory that is prepared and not yet decided is waited for: whoever
-- went by the old entry would store rows where nobody looks for them afterwards. The query has a newer snapshot than the lock.
CREATE FUNCTION pg_shoal.entries(distribution bigint, keys bytea[], OUT key bytea, OUT entry bigint) RETURNS SETOF record
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared('pg_shoal.directory'::regclass::oid::integer, entries.distribution::integer);
    RETURN QUERY SELECT d.key, d.entry FROM pg_shoal.directory d WHERE d.distribution = entries.distribution AND d.key = ANY (keys);
END
$$;

-- Gives a key of a directory another entry. Only who owns all tables of the directory may, while they are fenced.
CREATE FUNCTION pg_shoal.set_entry(distribution bigint, key bytea, entry bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_shoal.check_directory(set_entry.distribution);
    PERFORM pg_advisory_xact_lock('pg_shoal.directory'::regclass::oid::integer, set_entry.distribution::integer);
    INSERT INTO pg_shoal.directory AS d VALUES (set_entry.distribution, set_entry.key, set_entry.entry)
        ON CONFLICT ON CONSTRAINT directory_pkey DO UPDATE SET entry = excluded.entry;
END
$$;

-- Refuses those who do not own all tables of a directory.
CREATE FUNCTION pg_shoal.check_directory(distribution bigint) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_shoal.check_owner(c.oid) FROM pg_shoal.tables t JOIN pg_class c ON c.oid = t.relid
        WHERE t.distribution = check_directory.distribution;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no table has distribution %', distribution USING ERRCODE = 'undefined_object';
    END IF;
END
$$;

CREATE FUNCTION pg_shoal.set_schema(name text, distribution bigint, entry bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    schema oid := quote_ident(name)::regnamespace;
BEGIN
    PERFORM pg_shoal.check_schema_owner(schema);
    IF name ~ '^pg_' OR name = 'information_schema' THEN
        RAISE EXCEPTION 'schema % belongs to the system', quote_ident(name) USING ERRCODE = 'wrong_object_type';
    END IF;
    INSERT INTO pg_shoal.schemas AS s VALUES (schema, distribution, entry)
        ON CONFLICT ON CONSTRAINT schemas_pkey DO UPDATE SET distribution = excluded.distribution, entry = excluded.entry;
END
$$;

CREATE FUNCTION pg_shoal.unset_schema(name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    schema oid := quote_ident(name)::regnamespace;
BEGIN
    PERFORM pg_shoal.check_schema_owner(schema);
    DELETE FROM pg_shoal.schemas WHERE nspid = schema;
END
$$;

CREATE FUNCTION pg_shoal.check_schema_owner(schema oid) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- session_user, as in check_owner.
    IF NOT pg_has_role(session_user, (SELECT nspowner FROM pg_namespace WHERE oid = schema), 'MEMBER') THEN
        RAISE EXCEPTION 'must be owner of schema %', schema::regnamespace USING ERRCODE = 'insufficient_privilege';
    END IF;
END
$$;

-- Takes out the rows of tables and schemas that are gone; called in the transaction that dropped them.
CREATE FUNCTION pg_shoal.forget_dropped() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    forgotten bigint;
BEGIN
    DELETE FROM pg_shoal.tables t WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = t.relid);
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    DELETE FROM pg_shoal.schemas s WHERE NOT EXISTS (SELECT FROM pg_namespace n WHERE n.oid = s.nspid);
    RETURN forgotten;
END
$$;

-- The decisions of two-phase transactions whose decider this node was.
CREATE TABLE pg_shoal.decisions (
    gid        text PRIMARY KEY CHECK (length(gid) <= 200),
    outcome    text NOT NULL CHECK (outcome IN ('commit', 'abort')),
    decided_at timestamptz NOT NULL DEFAULT now(),
    decided_by name NOT NULL DEFAULT session_user
);
GRANT SELECT ON pg_shoal.decisions TO {router};

CREATE FUNCTION pg_shoal.decide(gid text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO pg_shoal.decisions (gid, outcome) VALUES (decide.gid, 'commit') ON CONFLICT (gid) DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'transaction % was already decided', decide.gid
            USING ERRCODE = 'serialization_failure',
                  DETAIL = 'Recovery settled it while it was about to commit.',
                  HINT = 'Run the transaction again.';
    END IF;
END
$$;

-- What a router needs to authenticate a client; the table it reads is for superusers only.
CREATE FUNCTION pg_shoal.verifier(role name, OUT rolpassword text, OUT rolcanlogin boolean, OUT rolvaliduntil timestamptz)
RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT rolpassword, rolcanlogin, rolvaliduntil FROM pg_authid WHERE rolname = role
$$;

-- Gives every sequence of the caller's roles this node's block of 2^48 values. The home node keeps
-- the first block, and with it the values a single server would give.
CREATE FUNCTION pg_shoal.place_sequences(OUT sequence text, OUT placed boolean, OUT reason text)
RETURNS SETOF record
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    node_id bigint := (SELECT id FROM pg_shoal.node);
    low  bigint := (node_id << 48) + 1;
    high bigint := ((node_id + 1) << 48) - 1;
    s record;
BEGIN
    IF node_id IS NULL OR node_id = 0 THEN
        RETURN;
    END IF;
    FOR s IN
        SELECT q.seqrelid, q.seqtypid, q.seqincrement, c.relowner,
               q.seqmin = 1 AND q.seqmax = 9223372036854775807 AS default_bounds
        FROM pg_sequence q JOIN pg_class c ON c.oid = q.seqrelid
        WHERE c.relpersistence <> 't' AND c.relnamespace <> 'pg_shoal'::regnamespace
          AND NOT (q.seqmin = low AND q.seqmax = high)
        ORDER BY q.seqrelid
    LOOP
        sequence := s.seqrelid::regclass;
        placed := false;
        reason := CASE
            WHEN s.seqtypid <> 'int8'::regtype THEN 'its type is ' || format_type(s.seqtypid, NULL) || ', blocks need bigint'
            WHEN s.seqincrement < 0 THEN 'it descends'
            WHEN NOT s.default_bounds THEN 'it has bounds of its own'
            WHEN NOT pg_has_role(current_user, s.relowner, 'USAGE') THEN 'it belongs to role ' || quote_ident(pg_get_userbyid(s.relowner))
            END;
        IF reason IS NULL THEN
            EXECUTE format('ALTER SEQUENCE %s MINVALUE %s MAXVALUE %s START %s RESTART %s', sequence, low, high, low, low);
            placed := true;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Fencing of routers: which backends serve which router, and the oldest epoch that may work here.
CREATE TABLE pg_shoal.epochs (min_epoch bigint NOT NULL);
CREATE UNIQUE INDEX epochs_is_one_row ON pg_shoal.epochs ((true));
INSERT INTO pg_shoal.epochs VALUES (0);
CREATE UNLOGGED TABLE pg_shoal.backends (
    router        text NOT NULL,
    pid           integer PRIMARY KEY,
    backend_start timestamptz NOT NULL
);
GRANT SELECT ON pg_shoal.epochs, pg_shoal.backends TO {router};

CREATE FUNCTION pg_shoal.admit(router text, epoch bigint, pid integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    started timestamptz;
BEGIN
    IF admit.pid <> pg_backend_pid() AND session_user <> {router_literal}
        AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = session_user) THEN
        RAISE EXCEPTION 'a session can admit only its own backend' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT backend_start INTO started FROM pg_stat_get_activity(admit.pid);
    -- raise_epoch waits for this lock, so whoever was admitted under the old epoch is listed
    -- before the new one counts.
    LOCK TABLE pg_shoal.epochs IN ROW SHARE MODE;
    IF started IS NULL OR epoch < (SELECT min_epoch FROM pg_shoal.epochs) THEN
        RETURN false;
    END IF;
    INSERT INTO pg_shoal.backends VALUES (router, admit.pid, started)
        ON CONFLICT (pid) DO UPDATE SET router = excluded.router, backend_start = excluded.backend_start;
    RETURN true;
END
$$;

-- Ends the backends of a router and returns how many lived; fails unless all are really gone.
CREATE FUNCTION pg_shoal.evict(router text) RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    -- A pid is reused: only the backend that started then is the one that was admitted.
    living integer[] := ARRAY(
        SELECT b.pid FROM pg_shoal.backends b
        JOIN pg_stat_activity a ON a.pid = b.pid AND a.backend_start = b.backend_start
        WHERE b.router = evict.router AND b.pid <> pg_backend_pid());
    left_over integer;
BEGIN
    PERFORM pg_terminate_backend(p) FROM unnest(living) p;
    -- A backend that is gone by now answers false like one that does not end; only the latter is
    -- still listed.
    PERFORM pg_terminate_backend(p, 10000) FROM unnest(living) p;
    PERFORM pg_stat_clear_snapshot();
    SELECT count(*) INTO left_over FROM pg_shoal.backends b
        JOIN pg_stat_activity a ON a.pid = b.pid AND a.backend_start = b.backend_start
        WHERE b.pid = ANY (living);
    IF left_over > 0 THEN
        RAISE EXCEPTION '% backends of router % did not end within 10 seconds', left_over, router
            USING ERRCODE = 'lock_not_available', HINT = 'Run it again.';
    END IF;
    DELETE FROM pg_shoal.backends b WHERE b.router = evict.router
        OR NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = b.pid AND a.backend_start = b.backend_start);
    RETURN cardinality(living);
END
$$;

CREATE FUNCTION pg_shoal.raise_epoch(epoch bigint) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    now_at bigint;
BEGIN
    LOCK TABLE pg_shoal.epochs IN EXCLUSIVE MODE;
    UPDATE pg_shoal.epochs SET min_epoch = greatest(min_epoch, epoch) RETURNING min_epoch INTO now_at;
    RETURN now_at;
END
$$;

-- Runs a query of the caller, with the caller's rights, where PostgreSQL prints every name
-- qualified. It lets a session read definitions without touching its own search_path.
CREATE FUNCTION pg_shoal.read(query text) RETURNS SETOF record
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
BEGIN
    RETURN QUERY EXECUTE query;
END
$$;

-- The definitions that PostgreSQL prints only under locks on the tables they use: bodies of views
-- ('v') and of SQL-standard functions ('p'), generation expressions ('g'). It does not wait for tables
-- that somebody is changing, those definitions are NULL, and it keeps no lock: a schema is read
-- while others work on it.
CREATE FUNCTION pg_shoal.definitions(OUT class text, OUT id oid, OUT num integer, OUT definition text) RETURNS SETOF record
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '20ms'
AS $$
#variable_conflict use_column
DECLARE
    wanted record;
    texts text[];
BEGIN
    SELECT array_agg(o.class) AS classes, array_agg(o.id) AS ids, array_agg(o.num) AS nums INTO wanted
    FROM (SELECT 'v' AS class, c.oid AS id, 0 AS num FROM pg_class c
            WHERE c.relkind IN ('v', 'm') AND c.oid >= 16384 AND c.relpersistence <> 't'
          UNION ALL
          SELECT 'p', p.oid, 0 FROM pg_proc p WHERE p.prosqlbody IS NOT NULL AND p.oid >= 16384
          UNION ALL
          SELECT 'g', a.attrelid, a.attnum FROM pg_attribute a
            WHERE a.attgenerated <> '' AND NOT a.attisdropped AND a.attrelid >= 16384) o;
    IF wanted.ids IS NULL THEN
        RETURN;
    END IF;
    BEGIN
        texts := ARRAY(SELECT pg_shoal.definition(o.class, o.id, o.num)
            FROM unnest(wanted.classes, wanted.ids, wanted.nums) WITH ORDINALITY o(class, id, num, n) ORDER BY o.n);
        RAISE SQLSTATE 'PS000'; -- rolls back, and with that gives up the locks
    EXCEPTION
        WHEN SQLSTATE 'PS000' THEN
            NULL;
        WHEN lock_not_available OR deadlock_detected OR internal_error THEN
            texts := NULL;
    END;
    FOR i IN 1 .. cardinality(wanted.ids) LOOP
        class := wanted.classes[i];
        id := wanted.ids[i];
        num := wanted.nums[i];
        definition := texts[i];
        IF texts IS NULL THEN
            -- One of them is locked: one by one, to lose no other.
            BEGIN
                definition := pg_shoal.definition(wanted.classes[i], wanted.ids[i], wanted.nums[i]);
                RAISE SQLSTATE 'PS000';
            EXCEPTION
                WHEN SQLSTATE 'PS000' OR lock_not_available OR deadlock_detected OR internal_error THEN
                    NULL;
            END;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE FUNCTION pg_shoal.definition(class text, id oid, num integer) RETURNS text
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE class
        WHEN 'v' THEN pg_get_viewdef(id)
        WHEN 'p' THEN pg_get_function_sqlbody(id)
        ELSE (SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d WHERE d.adrelid = id AND d.adnum = num) END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pg_shoal FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pg_shoal.verifier(name), pg_shoal.place_directory(bigint), pg_shoal.entries(bigint, bytea[]) TO {router};
GRANT EXECUTE ON FUNCTION
    pg_shoal.set_table(regclass, text, bigint, name[]), pg_shoal.unset_table(regclass), pg_shoal.forget_dropped(),
    pg_shoal.set_schema(text, bigint, bigint), pg_shoal.unset_schema(text), pg_shoal.check_schema_owner(oid),
    pg_shoal.set_entry(bigint, bytea, bigint), pg_shoal.check_directory(bigint), pg_shoal.check_owner(oid),
    pg_shoal.decide(text), pg_shoal.place_sequences(), pg_shoal.admit(text, bigint, integer), pg_shoal.read(text),
    pg_shoal.definitions(), pg_shoal.definition(text, oid, integer)
    TO PUBLIC;

-- step 2
-- What must hold for tables that are not local, and what no node can see by itself. Routers call it
-- before a transaction that changed the schema commits.
CREATE FUNCTION pg_shoal.check_tables() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r record;
BEGIN
    PERFORM FROM pg_shoal.placed;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    SELECT s.relid::regclass AS rel INTO r
    FROM pg_shoal.placed s
    WHERE EXISTS (SELECT FROM pg_class c WHERE c.oid = s.relid)
      AND EXISTS (SELECT FROM unnest(s.key_columns) k
                  WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = s.relid AND a.attnum = k AND NOT a.attisdropped));
    IF FOUND THEN
        RAISE EXCEPTION 'cannot drop the key column of distributed table %', r.rel
            USING ERRCODE = 'feature_not_supported', HINT = 'Call undistribute_table() first.';
    END IF;

    SELECT s.relid::regclass AS rel, a.attname INTO r
    FROM pg_shoal.placed s
    JOIN pg_attribute a ON a.attrelid = s.relid AND a.attnum = ANY (s.key_columns)
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
    WHERE a.attgenerated <> '' OR NOT coalesce(l.collisdeterministic, true);
    IF FOUND THEN
        RAISE EXCEPTION 'column % of table % cannot be a key', quote_ident(r.attname), r.rel
            USING ERRCODE = 'feature_not_supported', HINT = 'A key is neither a generated column nor of a nondeterministic collation.';
    END IF;

    SELECT i.indexrelid::regclass AS index, i.indrelid::regclass AS rel,
           string_agg(quote_ident(root.attname), ', ' ORDER BY k.n) AS missing,
           (SELECT string_agg(quote_ident(c.attname), ', ' ORDER BY all_keys.n)
            FROM unnest(s.key_columns) WITH ORDINALITY all_keys(num, n)
            JOIN pg_attribute c ON c.attrelid = s.relid AND c.attnum = all_keys.num) AS key INTO r
    FROM pg_index i
    JOIN pg_shoal.placed s ON s.relid = coalesce(pg_partition_root(i.indrelid), i.indrelid) AND s.kind = 'distributed'
    CROSS JOIN unnest(s.key_columns) WITH ORDINALITY k(num, n)
    JOIN pg_attribute root ON root.attrelid = s.relid AND root.attnum = k.num
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attname = root.attname AND NOT a.attisdropped
    WHERE (i.indisunique OR i.indisexclusion) AND i.indislive
      AND NOT EXISTS (
          SELECT FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) WITH ORDINALITY x(num, n)
          LEFT JOIN pg_constraint e ON i.indisexclusion AND e.conindid = i.indexrelid AND e.contype = 'x'
          LEFT JOIN pg_operator o ON o.oid = e.conexclop[x.n]
          -- Rows whose keys differ exclude each other under another operator than equality.
          WHERE x.num = a.attnum AND (NOT i.indisexclusion OR o.oprname = '='))
    GROUP BY i.indexrelid, i.indrelid, s.relid, s.key_columns LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'unique constraint or index % of distributed table % does not contain the key column %', r.index, r.rel, r.missing
            USING ERRCODE = 'feature_not_supported',
                  DETAIL = 'Each node can check only its own rows.',
                  HINT = format('Add the key to it, for example PRIMARY KEY (%s, ...).', r.key);
    END IF;

    SELECT f.conname, f.conrelid::regclass AS rel, f.confrelid::regclass AS ref,
           coalesce(a.kind, 'local') AS kind, coalesce(b.kind, 'local') AS ref_kind INTO r
    FROM pg_constraint f
    LEFT JOIN pg_shoal.placed a ON a.relid = coalesce(pg_partition_root(f.conrelid), f.conrelid)
    LEFT JOIN pg_shoal.placed b ON b.relid = coalesce(pg_partition_root(f.confrelid), f.confrelid)
    WHERE f.contype = 'f' AND (a.relid IS NOT NULL OR b.relid IS NOT NULL)
      AND NOT coalesce(b.kind = 'reference', false)
      -- Each column of the key refers to the same column of the other table's key.
      AND NOT coalesce(a.kind = 'distributed' AND b.kind = 'distributed' AND a.distribution = b.distribution AND a.nspid IS NOT DISTINCT FROM b.nspid
        AND NOT EXISTS (
            SELECT FROM unnest(a.key_columns, b.key_columns) key(own, other)
            WHERE NOT EXISTS (
                SELECT FROM unnest(f.conkey, f.confkey) k(own, other)
                JOIN pg_attribute x ON x.attrelid = f.conrelid AND x.attnum = k.own
                JOIN pg_attribute y ON y.attrelid = f.confrelid AND y.attnum = k.other
                JOIN pg_attribute xr ON xr.attrelid = a.relid AND xr.attnum = key.own AND xr.attname = x.attname
                JOIN pg_attribute yr ON yr.attrelid = b.relid AND yr.attnum = key.other AND yr.attname = y.attname)), false);
    IF FOUND THEN
        RAISE EXCEPTION 'foreign key % from % table % to % table % cannot be kept', quote_ident(r.conname), r.kind, r.rel, r.ref_kind, r.ref
            USING ERRCODE = 'feature_not_supported',
                  DETAIL = 'The rows it connects may be on different nodes.',
                  HINT = 'Distribute both tables by the columns of the foreign key in one transaction, make the referenced table a reference table, or drop the constraint.';
    END IF;

    -- An action of a foreign key changes rows inside one node, where a row with another key does not belong.
    SELECT f.conname, f.conrelid::regclass AS rel, quote_ident(x.attname) AS key INTO r
    FROM pg_constraint f
    JOIN pg_shoal.placed a ON a.relid = coalesce(pg_partition_root(f.conrelid), f.conrelid) AND a.kind = 'distributed'
    LEFT JOIN pg_shoal.placed b ON b.relid = coalesce(pg_partition_root(f.confrelid), f.confrelid)
    JOIN pg_attribute xr ON xr.attrelid = a.relid AND xr.attnum = ANY (a.key_columns)
    JOIN pg_attribute x ON x.attrelid = f.conrelid AND x.attname = xr.attname AND x.attnum = ANY (f.conkey)
    WHERE f.contype = 'f'
      AND (f.confupdtype IN ('n', 'd') OR f.confupdtype = 'c' AND b.kind = 'reference'
           OR f.confdeltype IN ('n', 'd') AND (f.confdelsetcols IS NULL OR x.attnum = ANY (f.confdelsetcols)))
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'foreign key % of distributed table % would change the key column % inside a node', quote_ident(r.conname), r.rel, r.key
            USING ERRCODE = 'feature_not_supported',
                  DETAIL = 'The row would stay on a node where nobody looks for its new key.',
                  HINT = 'Use NO ACTION, RESTRICT or ON DELETE CASCADE.';
    END IF;

    SELECT i.inhrelid::regclass AS rel INTO r
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid AND NOT c.relispartition
    JOIN pg_shoal.placed s ON s.relid IN (i.inhrelid, i.inhparent);
    IF FOUND THEN
        RAISE EXCEPTION 'table % takes part in inheritance, which distributed and reference tables cannot', r.rel
            USING ERRCODE = 'feature_not_supported', HINT = 'Use a partitioned table.';
    END IF;

    SELECT w.ev_class::regclass AS rel INTO r
    FROM pg_rewrite w
    JOIN pg_shoal.placed s ON s.relid = coalesce(pg_partition_root(w.ev_class), w.ev_class)
    WHERE w.rulename <> '_RETURN';
    IF FOUND THEN
        RAISE EXCEPTION 'rules on distributed or reference table % are not supported', r.rel
            USING ERRCODE = 'feature_not_supported', HINT = 'Drop the rule, or do its work in the application.';
    END IF;

    PERFORM pg_shoal.check_hidden_sql();
END
$$;

-- SQL that runs inside a node sees only that node's rows.
CREATE FUNCTION pg_shoal.check_hidden_sql() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r record;
    gap text := '(\s|/\*([^*]|\*[^/])*\*/|--[^\n]*\n)*'; -- between two words
BEGIN
    SELECT p.polname, p.polrelid::regclass AS rel INTO r
    FROM pg_policy p
    JOIN pg_shoal.placed s ON s.relid = coalesce(pg_partition_root(p.polrelid), p.polrelid)
    WHERE concat_ws(' ', pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)) ~* '\mselect\M';
    IF FOUND THEN
        RAISE EXCEPTION 'policy % of table % reads other rows, which may be on other nodes', quote_ident(r.polname), r.rel
            USING ERRCODE = 'feature_not_supported', HINT = 'Use columns of the row and settings only.';
    END IF;

    SELECT t.tgname, t.tgrelid::regclass AS rel, f.proname INTO r
    FROM pg_trigger t
    JOIN pg_shoal.placed s ON s.relid = coalesce(pg_partition_root(t.tgrelid), t.tgrelid)
    JOIN pg_proc f ON f.oid = t.tgfoid
    JOIN pg_language l ON l.oid = f.prolang
    WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND (
        l.lanname NOT IN ('plpgsql')
        -- TG_OP = 'UPDATE' is no statement.
        OR regexp_replace(f.prosrc, '''(insert|update|delete|truncate)''', '', 'gi') ~* '\m(select|insert|update|delete|merge|execute|perform|truncate|copy|call|table|with|open|fetch|foreach)\M|\mu&"'
        -- It may give the row another key: by assigning to it or to the row, or by returning another row.
        OR f.prosrc ~* ('\mnew"?' || gap || ':?=')
        OR EXISTS (SELECT FROM pg_attribute k WHERE k.attrelid = s.relid AND k.attnum = ANY (s.key_columns)
                   AND f.prosrc ~* ('\mnew"?' || gap || '\.' || gap || '"?' || regexp_replace(k.attname, '(\W)', '\\\1', 'g') || '"?' || gap || ':?='))
        OR (SELECT count(*) FROM regexp_matches(f.prosrc, '\mreturn\M', 'gi'))
           <> (SELECT count(*) FROM regexp_matches(f.prosrc, '\mreturn' || gap || '\(?(new|old|null|coalesce\s*\(\s*(new|old)\s*,\s*(new|old)\s*\))\)?\s*;', 'gi'))
        OR s.kind = 'reference' AND f.prosrc ~* '\m(now|random|nextval|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday|gen_random_uuid|uuid_generate\w*|current_\w+|localtime\w*)\M');
    IF FOUND THEN
        RAISE EXCEPTION 'trigger % of table % calls function %, which may do more than change other columns of its own row', quote_ident(r.tgname), r.rel, quote_ident(r.proname)
            USING ERRCODE = 'feature_not_supported',
                  DETAIL = 'A trigger runs inside one node and sees only that node''s rows.',
                  HINT = 'Drop the trigger, or do its work in the application.';
    END IF;

    SELECT a.attname, a.attrelid::regclass AS rel, q.seqrelid::regclass AS seq INTO r
    FROM pg_shoal.placed s
    JOIN pg_attribute a ON a.attrelid = s.relid AND a.attnum > 0 AND NOT a.attisdropped AND a.attnum <> ALL (s.key_columns)
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    JOIN pg_depend x ON x.classid = 'pg_attrdef'::regclass AND x.objid = d.oid AND x.refclassid = 'pg_class'::regclass
        OR x.classid = 'pg_class'::regclass AND x.refclassid = 'pg_class'::regclass AND x.refobjid = a.attrelid
           AND x.refobjsubid = a.attnum AND x.deptype = 'i'
    JOIN pg_sequence q ON q.seqrelid = CASE WHEN x.deptype = 'i' AND x.classid = 'pg_class'::regclass THEN x.objid ELSE x.refobjid END
    WHERE s.kind = 'distributed'
      AND (q.seqtypid <> 'int8'::regtype OR q.seqincrement < 0 OR q.seqmin <> 1 OR q.seqmax NOT IN (9223372036854775807, (1::bigint << 48) - 1));
    IF FOUND THEN
        RAISE EXCEPTION 'sequence % of column % of distributed table % cannot give each node values of its own', r.seq, quote_ident(r.attname), r.rel
            USING ERRCODE = 'feature_not_supported',
                  DETAIL = 'Only ascending bigint sequences without bounds of their own have room for a block per node.',
                  HINT = format('Use bigint: ALTER TABLE %s ALTER COLUMN %I TYPE bigint; ALTER SEQUENCE %s AS bigint MAXVALUE 9223372036854775807.', r.rel, r.attname, r.seq);
    END IF;
END
$$;

-- The SQL of one term of a filter (see remove_rows) over the key columns of a table. It has built-in types, casts,
-- operators and functions only, because it runs with the rights of pg_shoal's owner.
CREATE FUNCTION pg_shoal.filter_term(rel oid, term jsonb, OUT expression text, OUT type text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    columns text[];
    -- The map orders text by its bytes.
    by_bytes text := CASE WHEN term -> 'types' ->> 0 IN ('text', 'character') THEN ' COLLATE "C"' ELSE '' END;
BEGIN
    SELECT array_agg(format('%I::%s', a.attname, pg_shoal.key_type(c.type)) ORDER BY c.n) INTO columns
    FROM ROWS FROM (jsonb_array_elements_text(term -> 'columns'), jsonb_array_elements_text(term -> 'types')) WITH ORDINALITY c(position, type, n)
    JOIN pg_shoal.tables s ON s.relid = rel
    JOIN pg_attribute a ON a.attrelid = rel AND a.attnum = s.key_columns[c.position::integer + 1]
    -- A cast from a type that a user made could call the user's function.
    WHERE (WITH RECURSIVE base AS (SELECT t.oid, t.typbasetype FROM pg_type t WHERE t.oid = a.atttypid
               UNION ALL SELECT t.oid, t.typbasetype FROM base JOIN pg_type t ON t.oid = base.typbasetype)
           SELECT bool_or(base.oid = ANY ('{int2,int4,int8,text,varchar,bpchar,uuid,bytea,numeric,date,timestamp,timestamptz,bool}'::regtype[]))
           FROM base WHERE base.typbasetype = 0);
    IF cardinality(columns) IS DISTINCT FROM jsonb_array_length(term -> 'columns') OR cardinality(columns) = 0 THEN
        RAISE EXCEPTION 'table % has no key with these columns', rel::regclass USING ERRCODE = 'invalid_parameter_value';
    END IF;
    CASE term ->> 'method'
    WHEN 'hash' THEN
        -- The hash of a row with one column is that column's hash, whatever its type.
        type := 'bigint';
        expression := '0';
        FOR i IN 1 .. cardinality(columns) LOOP
            expression := format('hash_record_extended(ROW(%s), %s)', columns[i], expression);
        END LOOP;
    WHEN 'list' THEN
        type := pg_shoal.key_type(term -> 'types' ->> 0);
        SELECT format('CASE %s WHEN false THEN 0 %s END', string_agg(
                format('WHEN %s%s = %L::%s THEN %s', columns[1], by_bytes, r ->> 'value', type, (r ->> 'id')::integer), ' '),
                coalesce('ELSE ' || (term ->> 'default')::integer, ''))
            INTO expression FROM jsonb_array_elements(term -> 'regions') r;
        type := 'integer';
    WHEN 'range', 'directory' THEN
        type := pg_shoal.key_type(term -> 'types' ->> 0);
        expression := columns[1] || by_bytes;
    ELSE
        RAISE EXCEPTION 'a filter has no terms of method %', term ->> 'method' USING ERRCODE = 'invalid_parameter_value';
    END CASE;
END
$$;

-- The key types, as they may stand in SQL.
CREATE FUNCTION pg_shoal.key_type(type text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF type = 'character' THEN
        RETURN 'bpchar'; -- without a length it would be one character
    ELSIF type IN ('bigint', 'text', 'uuid', 'bytea', 'numeric', 'date', 'timestamp without time zone', 'timestamp with time zone', 'boolean') THEN
        RETURN type;
    END IF;
    RAISE EXCEPTION '% is no key type', quote_literal(type) USING ERRCODE = 'invalid_parameter_value';
END
$$;

-- Deletes the rows of a table that no filter holds for, or those that one holds for, without firing triggers: they have moved to
-- other nodes, nobody deleted them. Only the table's owner may, and only while its placement is being
-- changed. A filter is what keyspace.Filter writes: terms over key columns, and bounds that compare the
-- first of them, as a row, with values. It is data and no SQL, because this runs as its owner.
CREATE FUNCTION pg_shoal.remove_rows(rel regclass, filters jsonb, those boolean DEFAULT false) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET timezone = 'UTC'
SET session_replication_role = replica
AS $$
DECLARE
    condition text;
    removed bigint;
BEGIN
    PERFORM pg_shoal.check_owner(rel);
    -- This runs as its owner, so no code of the table's owner may run with it.
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', rel);
    PERFORM FROM (SELECT rel AS relid UNION SELECT relid FROM pg_partition_tree(rel)) t
        WHERE EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = t.relid AND g.tgenabled = 'A')
           OR EXISTS (SELECT FROM pg_rewrite w WHERE w.ev_class = t.relid AND w.ev_enabled = 'A');
    IF FOUND THEN
        RAISE EXCEPTION 'table % has a trigger or rule that is always enabled', rel
            USING ERRCODE = 'feature_not_supported', HINT = 'Disable it while the table is distributed.';
    END IF;
    SELECT string_agg('(' || pg_shoal.filter_condition(rel, f) || ')', ' OR ') INTO condition FROM jsonb_array_elements(filters) f;
    EXECUTE format('DELETE FROM %s WHERE (%s) = %L', rel, coalesce(condition, 'false'), those);
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END
$$;

CREATE FUNCTION pg_shoal.filter_condition(rel oid, filter jsonb) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    bound jsonb;
    condition text := 'true';
    terms text;
    compared text;
BEGIN
    IF filter ? 'keys' THEN
        IF jsonb_array_length(filter -> 'keys') = 0 THEN
            RETURN 'false';
        END IF;
        SELECT format('%s = ANY (%L::%s[])', t.expression, ARRAY(SELECT jsonb_array_elements_text(filter -> 'keys')), t.type) INTO terms
            FROM pg_shoal.filter_term(rel, filter -> 'terms' -> 0) t;
        RETURN terms;
    END IF;
    FOREACH bound IN ARRAY ARRAY[filter -> 'low', filter -> 'high'] LOOP
        CONTINUE WHEN bound IS NULL OR bound = 'null';
        IF bound ->> 'op' NOT IN ('<', '<=', '>', '>=') OR jsonb_array_length(bound -> 'values') > jsonb_array_length(filter -> 'terms') THEN
            RAISE EXCEPTION 'a filter has a bound that is not valid' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        SELECT string_agg(t.expression, ', ' ORDER BY v.n), string_agg(format('%L::%s', v.value, t.type), ', ' ORDER BY v.n)
            INTO terms, compared
            FROM jsonb_array_elements_text(bound -> 'values') WITH ORDINALITY v(value, n),
                 pg_shoal.filter_term(rel, filter -> 'terms' -> (v.n::integer - 1)) t;
        condition := format('%s AND ROW(%s) %s ROW(%s)', condition, terms, bound ->> 'op', compared);
    END LOOP;
    RETURN condition;
END
$$;

REVOKE ALL ON FUNCTION pg_shoal.check_tables(), pg_shoal.check_hidden_sql(), pg_shoal.remove_rows(regclass, jsonb, boolean),
    pg_shoal.filter_condition(oid, jsonb), pg_shoal.filter_term(oid, jsonb), pg_shoal.key_type(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pg_shoal.check_tables(), pg_shoal.check_hidden_sql(), pg_shoal.remove_rows(regclass, jsonb, boolean) TO PUBLIC;

-- From this epoch on only these routers may work here: the backends of all others are ended, and
-- none of them comes back before it has a newer map. Called when a fence is up, so that a router
-- which is cut off from the topology store cannot act on the map from before.
CREATE FUNCTION pg_shoal.admit_only(routers text[], epoch bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ended integer := 0;
    r text;
BEGIN
    PERFORM pg_shoal.raise_epoch(epoch);
    FOR r IN SELECT DISTINCT b.router FROM pg_shoal.backends b WHERE b.router <> ALL (routers) LOOP
        ended := ended + pg_shoal.evict(r);
    END LOOP;
    RETURN ended;
END
$$;
REVOKE ALL ON FUNCTION pg_shoal.admit_only(text[], bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pg_shoal.admit_only(text[], bigint) TO {router};

-- Ends the idle connections that routers keep to a database, so that it can be dropped or renamed.
CREATE FUNCTION pg_shoal.disconnect(database name) RETURNS integer
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT count(*) FILTER (WHERE pg_terminate_backend(a.pid, 5000))::integer
    FROM pg_shoal.backends b JOIN pg_stat_activity a ON a.pid = b.pid AND a.backend_start = b.backend_start
    WHERE a.datname = database AND a.state = 'idle' AND a.pid <> pg_backend_pid()
$$;
REVOKE ALL ON FUNCTION pg_shoal.disconnect(name) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pg_shoal.disconnect(name) TO {router};

-- Routers measure how far behind replicas are.
GRANT pg_read_all_stats TO {router};

-- step 3
-- Transactions over several nodes whose statement takes long, as their routers note them: which backend
-- here works for which of them. It joins the waits of all nodes to one graph.
CREATE UNLOGGED TABLE pg_shoal.spans (
    router      text NOT NULL,
    pid         integer NOT NULL,
    transaction text NOT NULL, -- the process number that the client knows, and which of its transactions it is
    began       bigint NOT NULL,
    gid         text NOT NULL,
    noted       timestamptz NOT NULL,
    PRIMARY KEY (router, pid)
);

-- Takes a router's notes, [[pid, transaction, began, gid], ...], in place of its earlier ones, and returns those of
-- all routers ('span') and who waits for a lock ('wait'). A wait's note counts only if it is younger than the wait:
-- then the backend has worked for that transaction all the time.
CREATE FUNCTION pg_shoal.lock_waits(router text, notes jsonb,
    OUT kind text, OUT pid integer, OUT transaction text, OUT began text, OUT gid text,
    OUT since text, OUT blockers text, OUT lock text, OUT role text, OUT statement text)
RETURNS SETOF record
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM pg_shoal.spans s WHERE s.router = lock_waits.router OR s.noted < now() - interval '1 minute';
    INSERT INTO pg_shoal.spans
        SELECT lock_waits.router, (n ->> 0)::integer, n ->> 1, (n ->> 2)::bigint, n ->> 3, clock_timestamp() FROM jsonb_array_elements(notes) n;
    RETURN QUERY
    SELECT 'span', s.pid, s.transaction, s.began::text, s.gid, '', '', '', '', ''
    FROM pg_shoal.spans s WHERE s.noted > clock_timestamp() - interval '3 seconds'
    UNION ALL
    SELECT 'wait', l.pid, coalesce(s.transaction, ''), coalesce(s.began, 0)::text,
        coalesce((SELECT p.gid FROM pg_prepared_xacts p WHERE l.locktype = 'transactionid' AND p.transaction = l.transactionid), ''),
        l.waitstart::text, array_to_string(pg_blocking_pids(l.pid), ','),
        l.mode || ' on ' || CASE l.locktype
            WHEN 'transactionid' THEN 'transaction ' || l.transactionid
            WHEN 'relation' THEN 'relation ' || l.relation || ' of database ' || l.database
            WHEN 'tuple' THEN format('tuple (%s,%s) of relation %s of database %s', l.page, l.tuple, l.relation, l.database)
            ELSE l.locktype END,
        coalesce(a.usename::text, ''), coalesce(left(a.query, 300), '')
    FROM pg_locks l
    JOIN pg_stat_activity a ON a.pid = l.pid
    LEFT JOIN pg_shoal.spans s ON s.pid = l.pid AND s.noted > l.waitstart
    WHERE NOT l.granted AND l.waitstart IS NOT NULL;
END
$$;
REVOKE ALL ON FUNCTION pg_shoal.lock_waits(text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pg_shoal.lock_waits(text, jsonb) TO {router};

-- Every role can read the gid of a prepared transaction, and any role may have to decide. So a gid ends with the
-- hash of a secret that only the coordinator has, and who decides must give it.
DROP FUNCTION pg_shoal.decide(text);
CREATE FUNCTION pg_shoal.decide(gid text, secret text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF right(decide.gid, 32) IS DISTINCT FROM left(encode(sha256(convert_to(decide.secret, 'UTF8')), 'hex'), 32) THEN
        RAISE EXCEPTION 'transaction % can be decided only by its coordinator', decide.gid USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO pg_shoal.decisions (gid, outcome) VALUES (decide.gid, 'commit') ON CONFLICT (gid) DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'transaction % was already decided', decide.gid
            USING ERRCODE = 'serialization_failure',
                  DETAIL = 'Recovery settled it while it was about to commit.',
                  HINT = 'Run the transaction again.';
    END IF;
END
$$;

-- Keeps decisions from being made until the caller's transaction ends, and waits for those that are about to be. Who sleeps on it is ended.
CREATE FUNCTION pg_shoal.hold_decisions() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '200ms'
AS $$
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '1s', true);
    LOCK TABLE pg_shoal.decisions IN SHARE MODE;
END
$$;
REVOKE ALL ON FUNCTION pg_shoal.hold_decisions() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pg_shoal.hold_decisions() TO {router};

-- Which transactions over several nodes have committed here: each part records itself, so a snapshot shows which
-- of them it sees. Readers over several nodes compare that (shoal.read_consistency). The xid finds the newest.
CREATE TABLE pg_shoal.seen (
    gid   text PRIMARY KEY,
    nodes text[] NOT NULL, -- that take part
    xid   xid8 NOT NULL,
    at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX seen_xid ON pg_shoal.seen (xid);
GRANT SELECT ON pg_shoal.seen TO PUBLIC;

-- Any role may have to record its part, but only the coordinator can under this name: somebody else's record of a transaction that
-- is under way would fail its commit, or make readers believe that there is no such transaction. Who makes up a name of his own costs
-- readers a further look at it, and nothing else.
CREATE FUNCTION pg_shoal.mark(gid text, nodes text[], secret text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF right(gid, 32) IS DISTINCT FROM left(encode(sha256(convert_to(secret, 'UTF8')), 'hex'), 32) THEN
        RAISE EXCEPTION 'transaction % can be recorded only by its coordinator', gid USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO pg_shoal.seen VALUES (gid, nodes, pg_current_xact_id());
END
$$;

-- step 4
-- Functions and procedures whose calls run on the node of a key: one of their arguments. Keyed by OID, as pg_shoal.tables.
CREATE TABLE pg_shoal.functions (
    procid       oid PRIMARY KEY,
    distribution bigint NOT NULL,
    argument     integer NOT NULL CHECK (argument > 0) -- which of the arguments that a call gives, counted from 1
);
GRANT SELECT ON pg_shoal.functions TO PUBLIC;

CREATE FUNCTION pg_shoal.check_function_owner(procedure oid) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- session_user, as in check_owner.
    IF NOT pg_has_role(session_user, (SELECT proowner FROM pg_proc WHERE oid = procedure), 'MEMBER') THEN
        RAISE EXCEPTION 'must be owner of function %', procedure::regprocedure USING ERRCODE = 'insufficient_privilege';
    END IF;
END
$$;

CREATE FUNCTION pg_shoal.set_function(procedure regprocedure, distribution bigint, argument integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
    PERFORM pg_shoal.check_function_owner(procedure);
    INSERT INTO pg_shoal.functions AS f VALUES (procedure, distribution, argument)
        ON CONFLICT ON CONSTRAINT functions_pkey DO UPDATE SET distribution = excluded.distribution, argument = excluded.argument;
END
$$;

CREATE FUNCTION pg_shoal.unset_function(procedure regprocedure) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_shoal.check_function_owner(procedure);
    DELETE FROM pg_shoal.functions f WHERE f.procid = procedure;
END
$$;

-- What is gone takes its placement along; functions too.
CREATE OR REPLACE FUNCTION pg_shoal.forget_dropped() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    forgotten bigint;
BEGIN
    DELETE FROM pg_shoal.tables t WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = t.relid);
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    DELETE FROM pg_shoal.schemas s WHERE NOT EXISTS (SELECT FROM pg_namespace n WHERE n.oid = s.nspid);
    DELETE FROM pg_shoal.functions f WHERE NOT EXISTS (SELECT FROM pg_proc p WHERE p.oid = f.procid);
    RETURN forgotten;
END
$$;

REVOKE ALL ON FUNCTION pg_shoal.set_function(regprocedure, bigint, integer), pg_shoal.unset_function(regprocedure), pg_shoal.check_function_owner(oid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pg_shoal.set_function(regprocedure, bigint, integer), pg_shoal.unset_function(regprocedure) TO PUBLIC;
-- step 5
-- What a commit over several nodes writes is one row per node, by an INSERT that routers keep prepared. The decider's row is its decision
-- and its record for atomic reads at once; the others have a record in pg_shoal.parts. pg_shoal.seen shows both.
DROP FUNCTION pg_shoal.mark(text, text[], text), pg_shoal.decide(text, text);

ALTER TABLE pg_shoal.seen RENAME TO parts;
ALTER INDEX pg_shoal.seen_pkey RENAME TO parts_pkey;
ALTER INDEX pg_shoal.seen_xid RENAME TO parts_xid;
REVOKE SELECT ON pg_shoal.parts FROM PUBLIC;
ALTER TABLE pg_shoal.parts
    ALTER gid TYPE text COLLATE "C",
    ALTER xid SET DEFAULT pg_current_xact_id(),
    ADD secret text;

-- Checks of the table are read anew for each row, those of the view below are part of a plan.
ALTER TABLE pg_shoal.decisions
    DROP CONSTRAINT decisions_gid_check,
    DROP CONSTRAINT decisions_outcome_check,
    ALTER gid TYPE text COLLATE "C",
    ALTER outcome SET DEFAULT 'commit',
    ALTER decided_at SET DEFAULT clock_timestamp(),
    ADD nodes text[], -- that take part; null where somebody has only aborted
    ADD xid xid8,
    ADD secret text;
ALTER TABLE pg_shoal.decisions ALTER xid SET DEFAULT pg_current_xact_id();
CREATE INDEX decisions_xid ON pg_shoal.decisions (xid);

CREATE VIEW pg_shoal.seen AS
    SELECT gid, nodes, xid, at FROM pg_shoal.parts
    UNION ALL
    SELECT gid, nodes, xid, decided_at FROM pg_shoal.decisions WHERE outcome = 'commit' AND nodes IS NOT NULL;
GRANT SELECT ON pg_shoal.seen TO PUBLIC;

-- Any role may have to decide and to record its part, but only the coordinator can under this name: its secret's hash ends the gid. Somebody
-- else's decision would commit half of a transaction, or fail its commit; somebody else's record would make readers believe that there is no
-- such transaction. Who makes up a name of his own costs readers a further look at it, and nothing else.
CREATE VIEW pg_shoal.decide AS
    SELECT gid, nodes, secret FROM pg_shoal.decisions
    WHERE length(gid) <= 200 AND right(gid, 32) = left(encode(sha256(convert_to(secret, 'UTF8')), 'hex'), 32)
    WITH CHECK OPTION;
CREATE VIEW pg_shoal.record AS
    SELECT gid, nodes, secret FROM pg_shoal.parts
    WHERE length(gid) <= 200 AND right(gid, 32) = left(encode(sha256(convert_to(secret, 'UTF8')), 'hex'), 32)
    WITH CHECK OPTION;
GRANT INSERT ON pg_shoal.decide, pg_shoal.record TO PUBLIC;
