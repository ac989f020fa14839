-- What a Loader reads, one part per kind of row; build.go takes it in. Each part has six text
-- columns, so that one statement, and with it one snapshot, reads them all: first the kind of row
-- and everything that has no spaces, separated by spaces, then up to five free texts. {range} narrows
-- OIDs to what users made (>= 16384) or to what comes with the server.

-- part schema
SELECT concat_ws(' ', 's', string_agg(x.grantee::text, ',')), n.nspname, p.distribution::text, p.entry::text, NULL, NULL
FROM pg_namespace n
LEFT JOIN pg_shoal.schemas p ON p.nspid = n.oid
LEFT JOIN LATERAL aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) x ON x.privilege_type = 'USAGE'
WHERE n.nspname !~ '^pg_(temp_|toast)'
GROUP BY n.nspname, p.distribution, p.entry

-- part role
SELECT concat_ws(' ', 'l', r.oid, r.rolsuper), r.rolname, NULL, NULL, NULL, NULL
FROM pg_roles r

-- part membership
-- Whether rights are inherited is the member's business before PostgreSQL 16, the grant's since.
SELECT concat_ws(' ', 'm', m.member, m.roleid), NULL, NULL, NULL, NULL, NULL
FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.member
WHERE coalesce((to_jsonb(m) ->> 'inherit_option')::boolean, r.rolinherit)
UNION ALL
SELECT concat_ws(' ', 'm', d.datdba, 'pg_database_owner'::regrole::oid), NULL, NULL, NULL, NULL, NULL
FROM pg_database d WHERE d.datname = current_database()

-- part table
SELECT concat_ws(' ', 'r', c.oid, c.relkind, c.relpersistence, c.relispartition, c.relrowsecurity,
        c.relhasrules AND EXISTS (SELECT FROM pg_rewrite w WHERE w.ev_class = c.oid AND w.rulename <> '_RETURN'),
        coalesce(s.kind, 'local'), coalesce(s.distribution, 0), coalesce(array_to_string(s.key_columns, ','), ''), s.entry),
    n.nspname, c.relname, pg_get_userbyid(c.relowner), array_to_string(c.reloptions, chr(31)), NULL
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_shoal.placed s ON s.relid = c.oid
WHERE c.oid {range} AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND c.relpersistence <> 't'
    AND n.nspname <> 'pg_toast'

-- part column
SELECT concat_ws(' ', 'c', a.attrelid, a.attnum, a.atttypid, a.attnotnull,
        coalesce(nullif(a.attidentity, ''), '-'), coalesce(nullif(a.attgenerated, ''), '-'), coalesce(l.collisdeterministic, true),
        CASE coalesce(l.collprovider, 'n') WHEN 'n' THEN true WHEN 'c' THEN l.collcollate IN ('C', 'POSIX')
            WHEN 'd' THEN o.datlocprovider = 'c' AND o.datcollate IN ('C', 'POSIX') ELSE false END),
    a.attname, format_type(a.atttypid, a.atttypmod), NULL, NULL, NULL
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_collation l ON l.oid = a.attcollation
JOIN pg_database o ON o.datname = current_database()
WHERE c.oid {range} AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'

-- part default
-- The functions an expression calls are listed only in its stored form: dependencies on what
-- comes with the server are not recorded. What has variables is a generation expression, see definition.
SELECT concat_ws(' ', 'e', d.adrelid, d.adnum, v.oid IS NOT NULL),
    CASE WHEN strpos(d.adbin::text, '{VAR ') = 0 THEN pg_get_expr(d.adbin, 0) END, NULL, NULL, NULL, NULL
FROM pg_attrdef d
LEFT JOIN (
    SELECT DISTINCT e.oid
    FROM pg_attrdef e CROSS JOIN string_to_table(e.adbin::text, 'funcid ') WITH ORDINALITY f(rest, n)
    JOIN pg_proc p ON p.oid = CASE WHEN n > 1 THEN split_part(rest, ' ', 1)::oid END
    WHERE p.provolatile = 'v') v ON v.oid = d.oid

-- part sequence
SELECT concat_ws(' ', 'q', coalesce(d.adrelid, x.refobjid), coalesce(d.adnum, x.refobjsubid), q.seqrelid,
        q.seqtypid = 20 AND q.seqincrement > 0 AND (q.seqmin = 1 AND q.seqmax = 9223372036854775807
        OR q.seqmin > 1 AND q.seqmin % (1::bigint << 48) = 1 AND q.seqmax = q.seqmin + (1::bigint << 48) - 2)),
    format_type(q.seqtypid, NULL), NULL, NULL, NULL, NULL
FROM pg_sequence q
JOIN pg_depend x ON x.refclassid = 'pg_class'::regclass AND x.refobjid = q.seqrelid AND x.classid = 'pg_attrdef'::regclass
    OR x.classid = 'pg_class'::regclass AND x.objid = q.seqrelid AND x.refclassid = 'pg_class'::regclass AND x.deptype = 'i'
LEFT JOIN pg_attrdef d ON x.classid = 'pg_attrdef'::regclass AND d.oid = x.objid

-- part type
SELECT concat_ws(' ', 'y', t.oid, t.typtype, t.typbasetype, t.typelem,
        t.typdefaultbin IS NOT NULL AND EXISTS (
            SELECT FROM string_to_table(t.typdefaultbin::text, 'funcid ') WITH ORDINALITY f(rest, n)
            WHERE n > 1 AND split_part(rest, ' ', 1)::oid IN (SELECT oid FROM pg_proc WHERE provolatile = 'v'))),
    n.nspname, t.typname, pg_get_expr(t.typdefaultbin, 0), NULL, NULL
FROM pg_type t
JOIN pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
LEFT JOIN pg_class c ON c.oid = coalesce(nullif(t.typrelid, 0), e.typrelid)
WHERE t.oid {range} AND (c.oid IS NULL OR c.relkind = 'c') AND n.nspname !~ '^pg_(temp_|toast)'

-- part builtin function
SELECT concat_ws(' ', 'n', max(p.prokind::text),
        CASE WHEN bool_or(p.provolatile = 'v') THEN 'v' WHEN bool_or(p.provolatile = 's') THEN 's' ELSE 'i' END,
        bool_or(p.proretset)),
    n.nspname, p.proname, NULL, NULL, NULL
FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE p.oid {range}
GROUP BY n.nspname, p.proname

-- part function
SELECT concat_ws(' ', 'p', p.oid, p.prokind, p.provolatile, p.pronargdefaults, p.provariadic <> 0, p.proretset, p.prosecdef,
        replace(p.proargtypes::text, ' ', ',')),
    n.nspname, p.proname, l.lanname,
    CASE WHEN p.prokind <> 'a' AND p.prosqlbody IS NULL THEN p.prosrc END, NULL
FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace
JOIN pg_language l ON l.oid = p.prolang
WHERE p.oid {range} AND n.nspname !~ '^pg_temp_'

-- part placed function
SELECT concat_ws(' ', 'x', f.procid, f.distribution, f.argument, a.type), a.name, NULL, NULL, NULL, NULL
FROM pg_shoal.functions f
JOIN pg_proc p ON p.oid = f.procid
JOIN LATERAL (
    SELECT x.name, x.type, row_number() OVER (ORDER BY x.n) AS place
    FROM unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]), p.proargnames, p.proargmodes) WITH ORDINALITY x(type, name, mode, n)
    WHERE x.type IS NOT NULL AND (coalesce(x.mode, 'i') IN ('i', 'b', 'v') OR p.prokind = 'p')) a ON a.place = f.argument

-- part unique
SELECT concat_ws(' ', 'u', i.indrelid, i.indnkeyatts, i.indisprimary, k.oid IS NOT NULL, i.indisexclusion, i.indpred IS NOT NULL,
        replace(i.indkey::text, ' ', ',')),
    x.relname, NULL, NULL, NULL, NULL
FROM pg_index i
JOIN pg_class x ON x.oid = i.indexrelid AND x.relpersistence <> 't'
LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u', 'x')
WHERE i.indrelid {range} AND (i.indisunique OR i.indisexclusion) AND i.indislive
    AND x.relnamespace <> 'pg_toast'::regnamespace

-- part foreign key
SELECT concat_ws(' ', 'f', k.conrelid, array_to_string(k.conkey, ','), k.confrelid, array_to_string(k.confkey, ','),
        k.confdeltype, k.confupdtype),
    k.conname, NULL, NULL, NULL, NULL
FROM pg_constraint k
WHERE k.contype = 'f' AND k.conparentid = 0

-- part trigger
SELECT concat_ws(' ', 't', g.tgrelid, g.tgfoid, g.tgenabled), g.tgname, NULL, NULL, NULL, NULL
FROM pg_trigger g
WHERE NOT g.tgisinternal

-- part inheritance
SELECT concat_ws(' ', 'i', h.inhrelid, h.inhparent, h.inhseqno), NULL, NULL, NULL, NULL, NULL
FROM pg_inherits h

-- part definition
SELECT concat_ws(' ', class, id, num), definition, NULL, NULL, NULL, NULL
FROM (SELECT upper(class) AS class, id, num, definition FROM pg_shoal.definitions()) d

-- part operator
SELECT concat_ws(' ', 'o', p.oid, p.oprleft, p.oprright, p.oprcode::oid), n.nspname, p.oprname, NULL, NULL, NULL
FROM pg_operator p
JOIN pg_namespace n ON n.oid = p.oprnamespace
WHERE p.oid {range} AND p.oprname IN ('=', '<', '<=', '>', '>=', '~~', '^@')

-- part hidden
-- Code that runs with something else than its own call: checks, generated columns, index expressions, policies and conditions of
-- triggers with their table; casts, operators, support functions, types and event triggers with whatever uses them. Functions have
-- those that they depend on (F): aggregates, defaults of arguments, SQL-standard bodies. What comes with the server is
-- not in pg_depend, so functions of it that run SQL are found in the stored expression.
SELECT concat_ws(' ', 'h', o.class, o.rel, e.runs,
        coalesce(string_agg(DISTINCT d.function::text, ','), '0'), coalesce(string_agg(DISTINCT d.relation::text, ','), '0')),
    pg_describe_object(o.classid, o.id, 0), NULL, NULL, NULL, NULL
FROM (
    SELECT 'k' AS class, k.conrelid AS rel, 'pg_constraint'::regclass AS classid, k.oid AS id, k.conbin::text AS expression
    FROM pg_constraint k WHERE k.contype = 'c' AND k.conrelid {range}
    UNION ALL
    SELECT 'k', i.indrelid, 'pg_class'::regclass, i.indexrelid, concat(i.indexprs::text, i.indpred::text)
    FROM pg_index i WHERE i.indrelid {range} AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)
    UNION ALL
    SELECT 'k', e.adrelid, 'pg_attrdef'::regclass, e.oid, e.adbin::text
    FROM pg_attrdef e JOIN pg_attribute a ON a.attrelid = e.adrelid AND a.attnum = e.adnum WHERE a.attgenerated <> '' AND e.adrelid {range}
    UNION ALL
    SELECT 'k', g.tgrelid, 'pg_trigger'::regclass, g.oid, g.tgqual::text FROM pg_trigger g WHERE g.tgqual IS NOT NULL AND NOT g.tgisinternal
    UNION ALL
    SELECT 'p', p.polrelid, 'pg_policy'::regclass, p.oid, concat(p.polqual::text, p.polwithcheck::text) FROM pg_policy p
    UNION ALL
    SELECT 'y', 0, 'pg_constraint'::regclass, k.oid, k.conbin::text FROM pg_constraint k WHERE k.contype = 'c' AND k.contypid {range}
    UNION ALL
    SELECT 'y', 0, 'pg_type'::regclass, t.oid, t.typdefaultbin::text FROM pg_type t WHERE t.oid {range} AND t.typtype IN ('b', 'd', 'r')
    UNION ALL
    SELECT 'y', 0, 'pg_cast'::regclass, c.oid, NULL FROM pg_cast c WHERE c.oid {range}
    UNION ALL
    SELECT 'y', 0, 'pg_operator'::regclass, r.oid, NULL FROM pg_operator r WHERE r.oid {range}
    UNION ALL
    SELECT 'y', 0, 'pg_opclass'::regclass, c.oid, NULL FROM pg_opclass c WHERE c.oid {range}
    UNION ALL
    SELECT 'y', 0, 'pg_opfamily'::regclass, f.oid, NULL FROM pg_opfamily f
    UNION ALL
    SELECT 'y', 0, 'pg_amproc'::regclass, m.oid, NULL FROM pg_amproc m WHERE m.oid {range}
    UNION ALL
    SELECT 'y', 0, 'pg_event_trigger'::regclass, v.oid, NULL FROM pg_event_trigger v WHERE v.evtenabled <> 'D'
    UNION ALL
    SELECT 'F', f.oid, 'pg_proc'::regclass, f.oid, f.proargdefaults::text FROM pg_proc f WHERE f.oid {range}) o
CROSS JOIN LATERAL (
    SELECT coalesce(o.expression ~ (SELECT 'funcid (' || string_agg(q.oid::text, '|') || ') ' FROM pg_proc q
        WHERE q.oid < 16384 AND q.proname ~ '^((query|table|schema|database)_to_xml|ts_stat$|ts_rewrite$)'), false) AS runs) e
LEFT JOIN (
    SELECT x.classid, x.objid,
        CASE x.refclassid WHEN 'pg_proc'::regclass THEN x.refobjid WHEN 'pg_operator'::regclass THEN r.oprcode::oid END AS function,
        CASE x.refclassid WHEN 'pg_class'::regclass THEN x.refobjid END AS relation
    FROM pg_depend x
    LEFT JOIN pg_operator r ON x.refclassid = 'pg_operator'::regclass AND r.oid = x.refobjid
    WHERE x.refobjid {range}) d ON d.classid = o.classid AND d.objid = o.id AND (d.function {range} OR o.class = 'p' AND d.relation <> o.rel)
GROUP BY o.class, o.rel, o.classid, o.id, e.runs
HAVING count(d.objid) > 0 OR e.runs

-- part setting
SELECT concat_ws(' ', 'd', s.setdatabase <> 0), coalesce(r.rolname, ''), substr(v, length('search_path=') + 1), NULL, NULL, NULL
FROM pg_db_role_setting s
LEFT JOIN pg_roles r ON r.oid = s.setrole
CROSS JOIN unnest(s.setconfig) v
WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
    AND (s.setrole = 0 OR r.oid IS NOT NULL) AND v LIKE 'search\_path=%'

-- part fingerprint
SELECT 'b', version(),
    (SELECT count(*) || ' ' || sum(oid::bigint) || ' ' || sum(relnatts) FROM pg_class WHERE oid < 16384),
    (SELECT count(*) || ' ' || sum(oid::bigint) FROM pg_proc WHERE oid < 16384),
    (SELECT count(*) || ' ' || sum(oid::bigint) FROM pg_type WHERE oid < 16384), NULL
