-- The schema of a database as texts to compare, one row per object: kind, name, text. Nothing that
-- may differ between nodes is in the texts: no OIDs, no attribute numbers, no bounds or positions of
-- sequences, no tablespaces. Members of extensions are left to the extension's version.
-- Run with search_path = pg_catalog, so that names are printed qualified.

-- part server
SELECT 'role' AS kind, quote_ident(r.rolname) AS name, concat_ws(E'\n',
    concat_ws(' ', CASE WHEN rolsuper THEN 'SUPERUSER' END, CASE WHEN rolcanlogin THEN 'LOGIN' END,
        CASE WHEN rolcreatedb THEN 'CREATEDB' END, CASE WHEN rolcreaterole THEN 'CREATEROLE' END,
        CASE WHEN rolreplication THEN 'REPLICATION' END, CASE WHEN rolbypassrls THEN 'BYPASSRLS' END,
        CASE WHEN NOT rolinherit THEN 'NOINHERIT' END, 'CONNECTION LIMIT ' || rolconnlimit,
        'VALID UNTIL ' || nullif(rolvaliduntil, 'infinity')),
    -- The verifier itself is a secret; that it differs is not.
    'PASSWORD fingerprint ' || left(encode(sha256(convert_to(r.rolpassword, 'UTF8')), 'hex'), 16),
    (SELECT string_agg('MEMBER OF ' || quote_ident(g.rolname) || ' '
        || (to_jsonb(m) - '{oid,roleid,member,grantor}'::text[])::text, E'\n' ORDER BY g.rolname, m.admin_option) FROM pg_auth_members m JOIN pg_authid g ON g.oid = m.roleid WHERE m.member = r.oid),
    (SELECT string_agg('SET ' || coalesce('IN DATABASE ' || quote_ident(d.datname) || ' ', '') || v, E'\n' ORDER BY d.datname, v)
        FROM pg_db_role_setting s LEFT JOIN pg_database d ON d.oid = s.setdatabase, unnest(s.setconfig) v WHERE s.setrole = r.oid),
    'COMMENT ' || shobj_description(r.oid, 'pg_authid')) AS text
FROM pg_authid r WHERE r.rolname !~ '^pg_'
UNION ALL
SELECT 'database', d.datname, concat_ws(E'\n',
    format('OWNER %I ENCODING %s COLLATE %s CTYPE %s PROVIDER %s LOCALE %s', pg_get_userbyid(d.datdba), pg_encoding_to_char(d.encoding),
        d.datcollate, d.datctype, d.datlocprovider, coalesce(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale')),
    format('CONNECTION LIMIT %s ALLOW_CONNECTIONS %s IS_TEMPLATE %s', d.datconnlimit, d.datallowconn, d.datistemplate),
    (SELECT string_agg('GRANT ' || x, E'\n' ORDER BY x COLLATE "C") FROM unnest(coalesce(d.datacl, acldefault('d', d.datdba))::text[]) x),
    (SELECT string_agg('SET ' || v, E'\n' ORDER BY v) FROM pg_db_role_setting s, unnest(s.setconfig) v
        WHERE s.setdatabase = d.oid AND s.setrole = 0),
    'COMMENT ' || shobj_description(d.oid, 'pg_database'))
FROM pg_database d

-- part database
WITH own AS (SELECT oid, nspname, nspowner, nspacl FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'),
member AS (SELECT classid, objid FROM pg_depend WHERE deptype = 'e'),
rel AS (
    SELECT c.*, c.oid::regclass::text AS full_name FROM pg_class c JOIN own ON own.oid = c.relnamespace
    WHERE c.relpersistence <> 't' AND NOT EXISTS (SELECT FROM member m WHERE m.classid = 'pg_class'::regclass AND m.objid = c.oid)),
proc AS (
    SELECT p.*, p.oid::regprocedure::text AS full_name FROM pg_proc p JOIN own ON own.oid = p.pronamespace
    WHERE NOT EXISTS (SELECT FROM member m WHERE m.classid = 'pg_proc'::regclass AND m.objid = p.oid)),
typ AS (
    SELECT t.*, format_type(t.oid, NULL) AS full_name FROM pg_type t JOIN own ON own.oid = t.typnamespace
    LEFT JOIN pg_class c ON c.oid = t.typrelid
    WHERE (t.typtype IN ('d', 'e', 'r', 'b') OR c.relkind = 'c') AND t.typcategory <> 'A'
      AND NOT EXISTS (SELECT FROM member m WHERE m.classid = 'pg_type'::regclass AND m.objid = t.oid)),
grants AS (
    SELECT 'schema ' || quote_ident(nspname) AS name, coalesce(nspacl, acldefault('n', nspowner)) AS acl FROM own
    UNION ALL
    SELECT CASE relkind WHEN 'S' THEN 'sequence ' WHEN 'v' THEN 'view ' ELSE 'table ' END || full_name,
        coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner))
    FROM rel WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    UNION ALL
    SELECT 'column ' || rel.full_name || '.' || quote_ident(a.attname), a.attacl
    FROM rel JOIN pg_attribute a ON a.attrelid = rel.oid AND a.attacl IS NOT NULL AND NOT a.attisdropped
    UNION ALL
    SELECT 'function ' || full_name, coalesce(proacl, acldefault('f', proowner)) FROM proc
    UNION ALL
    SELECT 'type ' || full_name, coalesce(typacl, acldefault('T', typowner)) FROM typ
    UNION ALL
    SELECT format('default privileges of %I%s on %s', pg_get_userbyid(defaclrole),
        CASE WHEN defaclnamespace <> 0 THEN ' in schema ' || defaclnamespace::regnamespace ELSE '' END, defaclobjtype), defaclacl
    FROM pg_default_acl)
SELECT 'schema' AS kind, quote_ident(nspname) AS name, 'OWNER ' || quote_ident(pg_get_userbyid(nspowner)) AS text FROM own
UNION ALL
SELECT 'grant', name, (SELECT string_agg(x, E'\n' ORDER BY x COLLATE "C") FROM unnest(acl::text[]) x) FROM grants
UNION ALL
SELECT 'extension', quote_ident(extname), format('VERSION %s SCHEMA %I', extversion, extnamespace::regnamespace::text) FROM pg_extension
UNION ALL
SELECT 'table', rel.full_name, concat_ws(E'\n',
    format('KIND %s PERSISTENCE %s OWNER %I REPLICA IDENTITY %s', relkind, relpersistence, pg_get_userbyid(relowner), relreplident),
    CASE WHEN relrowsecurity THEN 'ROW SECURITY' END, CASE WHEN relforcerowsecurity THEN 'FORCE ROW SECURITY' END,
    'ACCESS METHOD ' || (SELECT amname FROM pg_am WHERE pg_am.oid = relam), 'OF ' || nullif(reloftype, 0)::regtype,
    'PARTITION BY ' || pg_get_partkeydef(rel.oid), pg_get_expr(relpartbound, rel.oid),
    'WITH ' || array_to_string(reloptions, ', '),
    (SELECT string_agg('INHERITS ' || i.inhparent::regclass, E'\n' ORDER BY i.inhseqno) FROM pg_inherits i WHERE i.inhrelid = rel.oid),
    (SELECT string_agg(concat_ws(' ', quote_ident(a.attname), format_type(a.atttypid, a.atttypmod),
            CASE WHEN a.attcollation <> t.typcollation THEN 'COLLATE ' || a.attcollation::regcollation END,
            CASE WHEN a.attnotnull THEN 'NOT NULL' END,
            CASE WHEN a.attidentity <> '' THEN 'IDENTITY ' || a.attidentity::text END,
            CASE WHEN a.attgenerated <> '' THEN 'GENERATED ' || a.attgenerated::text END,
            'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid),
            CASE WHEN a.attstorage <> t.typstorage THEN 'STORAGE ' || a.attstorage::text END,
            'COMPRESSION ' || nullif(a.attcompression, '')::text, 'STATISTICS ' || nullif(a.attstattarget, -1),
            'OPTIONS ' || array_to_string(a.attoptions || a.attfdwoptions, ', ')), E'\n' ORDER BY a.attnum)
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = rel.oid AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT string_agg(quote_ident(k.conname) || ' ' || pg_get_constraintdef(k.oid), E'\n' ORDER BY k.conname)
        FROM pg_constraint k WHERE k.conrelid = rel.oid AND k.contype <> 't'),
    (SELECT format('SERVER %I OPTIONS %s', s.srvname, f.ftoptions) FROM pg_foreign_table f JOIN pg_foreign_server s ON s.oid = f.ftserver
        WHERE f.ftrelid = rel.oid))
FROM rel WHERE relkind IN ('r', 'p', 'f')
UNION ALL
SELECT CASE relkind WHEN 'v' THEN 'view' ELSE 'materialized view' END, full_name, concat_ws(E'\n',
    'OWNER ' || quote_ident(pg_get_userbyid(relowner)), 'WITH ' || array_to_string(reloptions, ', '),
    (SELECT string_agg(quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod)
            || coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), ''), E'\n' ORDER BY a.attnum)
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = rel.oid AND a.attnum > 0 AND NOT a.attisdropped),
    pg_get_viewdef(oid))
FROM rel WHERE relkind IN ('v', 'm')
UNION ALL
SELECT 'index', full_name, concat_ws(E'\n', pg_get_indexdef(rel.oid),
    CASE WHEN i.indisclustered THEN 'CLUSTERED' END, CASE WHEN i.indisreplident THEN 'REPLICA IDENTITY' END,
    CASE WHEN NOT i.indisvalid THEN 'INVALID' END)
FROM rel JOIN pg_index i ON i.indexrelid = rel.oid
UNION ALL
SELECT 'sequence', full_name, concat_ws(E'\n',
    format('OWNER %I TYPE %s INCREMENT %s CACHE %s CYCLE %s PERSISTENCE %s', pg_get_userbyid(relowner), format_type(seqtypid, NULL),
        seqincrement, seqcache, seqcycle, relpersistence),
    (SELECT 'OWNED BY ' || d.refobjid::regclass || '.' || quote_ident(a.attname)
        FROM pg_depend d JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
        WHERE d.classid = 'pg_class'::regclass AND d.objid = rel.oid AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')))
FROM rel JOIN pg_sequence ON seqrelid = rel.oid
UNION ALL
SELECT 'function', full_name, concat_ws(E'\n', 'OWNER ' || quote_ident(pg_get_userbyid(proowner)),
    CASE WHEN prokind = 'a' THEN (SELECT format('AGGREGATE %s sfunc %s finalfunc %s combinefunc %s stype %s initcond %s sortop %s kind %s',
            pg_get_function_result(proc.oid), a.aggtransfn, a.aggfinalfn, a.aggcombinefn, format_type(a.aggtranstype, NULL),
            a.agginitval, a.aggsortop::regoperator, a.aggkind) FROM pg_aggregate a WHERE a.aggfnoid = proc.oid)
        ELSE pg_get_functiondef(oid) END)
FROM proc
UNION ALL
SELECT 'type', full_name, concat_ws(E'\n', 'KIND ' || typtype::text || ' OWNER ' || quote_ident(pg_get_userbyid(typowner)),
    (SELECT string_agg('LABEL ' || quote_literal(enumlabel), E'\n' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = typ.oid),
    CASE WHEN typtype = 'd' THEN concat_ws(' ', format_type(typbasetype, typtypmod), CASE WHEN typnotnull THEN 'NOT NULL' END,
        'DEFAULT ' || pg_get_expr(typdefaultbin, 0), 'COLLATE ' || nullif(typcollation, 0)::regcollation) END,
    (SELECT string_agg(quote_ident(conname) || ' ' || pg_get_constraintdef(k.oid), E'\n' ORDER BY conname)
        FROM pg_constraint k WHERE k.contypid = typ.oid),
    (SELECT string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod), E'\n' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = typ.typrelid AND attnum > 0 AND NOT attisdropped),
    (SELECT format('RANGE %s opclass %s collation %s canonical %s diff %s', format_type(rngsubtype, NULL),
        (SELECT opcname FROM pg_opclass WHERE oid = rngsubopc), rngcollation::regcollation, rngcanonical, rngsubdiff)
        FROM pg_range WHERE rngtypid = typ.oid),
    CASE WHEN typtype = 'b' THEN format('INPUT %s OUTPUT %s LENGTH %s', typinput, typoutput, typlen) END)
FROM typ
UNION ALL
SELECT 'trigger', rel.full_name || '.' || quote_ident(tgname), concat_ws(E'\n', pg_get_triggerdef(t.oid), 'ENABLED ' || tgenabled::text)
FROM pg_trigger t JOIN rel ON rel.oid = t.tgrelid WHERE NOT tgisinternal
UNION ALL
SELECT 'rule', rel.full_name || '.' || quote_ident(rulename), concat_ws(E'\n', pg_get_ruledef(w.oid), 'ENABLED ' || ev_enabled::text)
FROM pg_rewrite w JOIN rel ON rel.oid = w.ev_class WHERE rulename <> '_RETURN'
UNION ALL
SELECT 'policy', rel.full_name || '.' || quote_ident(polname), concat_ws(E'\n',
    format('FOR %s PERMISSIVE %s', polcmd, polpermissive),
    (SELECT string_agg('TO ' || CASE r WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r)) END, E'\n' ORDER BY pg_get_userbyid(r))
        FROM unnest(polroles) r),
    'USING ' || pg_get_expr(polqual, polrelid), 'WITH CHECK ' || pg_get_expr(polwithcheck, polrelid))
FROM pg_policy p JOIN rel ON rel.oid = p.polrelid
UNION ALL
SELECT 'statistics', quote_ident(own.nspname) || '.' || quote_ident(stxname), pg_get_statisticsobjdef(s.oid)
FROM pg_statistic_ext s JOIN own ON own.oid = s.stxnamespace
UNION ALL
SELECT 'operator', o.oid::regoperator::text, format('OWNER %I FUNCTION %s COMMUTATOR %s NEGATOR %s HASHES %s MERGES %s',
    pg_get_userbyid(oprowner), oprcode, oprcom::regoperator, oprnegate::regoperator, oprcanhash, oprcanmerge)
FROM pg_operator o JOIN own ON own.oid = o.oprnamespace
WHERE NOT EXISTS (SELECT FROM member m WHERE m.classid = 'pg_operator'::regclass AND m.objid = o.oid)
UNION ALL
SELECT 'collation', c.oid::regcollation::text, format('OWNER %I PROVIDER %s COLLATE %s CTYPE %s LOCALE %s DETERMINISTIC %s',
    pg_get_userbyid(collowner), collprovider, collcollate, collctype,
    coalesce(to_jsonb(c) ->> 'colllocale', to_jsonb(c) ->> 'colliculocale'), collisdeterministic)
FROM pg_collation c JOIN own ON own.oid = c.collnamespace
UNION ALL
SELECT 'cast', format('%s AS %s', format_type(castsource, NULL), format_type(casttarget, NULL)),
    format('METHOD %s CONTEXT %s FUNCTION %s', castmethod, castcontext, castfunc::regprocedure)
FROM pg_cast c WHERE c.oid >= 16384
  AND NOT EXISTS (SELECT FROM member m WHERE m.classid = 'pg_cast'::regclass AND m.objid = c.oid)
UNION ALL
SELECT 'foreign server', quote_ident(srvname), format('OWNER %I WRAPPER %I OPTIONS %s', pg_get_userbyid(srvowner), fdwname, srvoptions)
FROM pg_foreign_server s JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw
UNION ALL
SELECT 'event trigger', quote_ident(evtname), format('ON %s TAGS %s EXECUTE %s ENABLED %s', evtevent, evttags, evtfoid::regprocedure, evtenabled)
FROM pg_event_trigger e WHERE NOT EXISTS (SELECT FROM member m WHERE m.classid = 'pg_event_trigger'::regclass AND m.objid = e.oid)
UNION ALL
SELECT 'comment', i.type || ' ' || i.identity, d.description
FROM pg_description d CROSS JOIN LATERAL pg_identify_object(d.classoid, d.objoid, d.objsubid) i
WHERE (d.objoid >= 16384 OR d.classoid = 'pg_namespace'::regclass AND d.objoid = 2200) AND i.identity NOT LIKE 'pg\_shoal%' AND coalesce(i.schema, '') NOT LIKE 'pg\_%'
  AND d.classoid <> 'pg_largeobject'::regclass -- data of the home node
  AND NOT EXISTS (SELECT FROM member m WHERE m.classid = d.classoid AND m.objid = d.objoid)
UNION ALL
SELECT 'placement', rel.full_name, concat_ws(' ', upper(s.kind), 'DISTRIBUTION ' || s.distribution,
    'KEY ' || (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY k.n)
        FROM unnest(s.key_columns) WITH ORDINALITY k(num, n) JOIN pg_attribute a ON a.attrelid = s.relid AND a.attnum = k.num))
FROM pg_shoal.tables s JOIN rel ON rel.oid = s.relid
UNION ALL
SELECT 'placement', quote_ident(n.nspname), concat_ws(' ', 'SCHEMA DISTRIBUTION', s.distribution, 'ENTRY', s.entry)
FROM pg_shoal.schemas s JOIN pg_namespace n ON n.oid = s.nspid
UNION ALL
SELECT 'placement', f.procid::regprocedure::text, concat_ws(' ', 'FUNCTION DISTRIBUTION', f.distribution, 'ARGUMENT', f.argument)
FROM pg_shoal.functions f JOIN pg_proc p ON p.oid = f.procid
