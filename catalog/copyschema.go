package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// CopySchema gives a new node what the home node has: roles, databases, and the schema of each. Both
// connection strings are superusers of the same name, and BootstrapNode has made the target a node.
// A database that is the same already is passed over, so a copy that broke off can be repeated;
// any other that has objects of users is refused. Rows are not copied.
func CopySchema(ctx context.Context, from, to string) (warnings []string, err error) {
	c, err := openCopy(ctx, from, to)
	if err != nil {
		return nil, fmt.Errorf("copy the schema: %w", err)
	}
	defer c.close(ctx)
	steps := []func(context.Context) error{c.check, c.copyRoles, c.copyDatabases, c.copySettings}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return c.warnings, fmt.Errorf("copy the schema: %w", err)
		}
	}
	for _, database := range c.databases {
		if err := c.copyDatabase(ctx, database); err != nil {
			return c.warnings, fmt.Errorf("copy the schema of database %s: %w", database, err)
		}
	}
	return c.warnings, nil
}

// schemaCopy is one run of CopySchema.
type schemaCopy struct {
	from, to       *server
	source, target *pgx.Conn
	identity       Identity // the target's
	programs       programs
	databases      []string // of the source, as far as they accept connections
	warnings       []string
}

func openCopy(ctx context.Context, from, to string) (*schemaCopy, error) {
	c := &schemaCopy{}
	var err error
	if c.from, err = parseServer(from); err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if c.to, err = parseServer(to); err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	if c.source, err = pgx.ConnectConfig(ctx, c.from.config); err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if c.target, err = pgx.ConnectConfig(ctx, c.to.config); err != nil {
		c.source.Close(ctx)
		return nil, fmt.Errorf("target: %w", err)
	}
	return c, nil
}

func (c *schemaCopy) close(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	c.source.Close(ctx)
	c.target.Close(ctx)
}

func (c *schemaCopy) check(ctx context.Context) error {
	if c.from.config.User != c.to.config.User {
		return fmt.Errorf("the source is administered by role %q, the target by %q; use one superuser of the same name on both, "+
			"because it owns objects", c.from.config.User, c.to.config.User)
	}
	home, ok, err := ReadIdentity(ctx, c.source)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if !ok || !home.Home {
		return errors.New("the source is not the home node of a cluster; the schema is copied from there")
	}
	if c.identity, ok, err = ReadIdentity(ctx, c.target); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if !ok || c.identity.Cluster != home.Cluster || c.identity.Name == home.Name {
		return errors.New("the target is not another node of the same cluster; bootstrap it first")
	}
	var major int
	if err := c.source.QueryRow(ctx, `SELECT current_setting('server_version_num')::int / 10000`).Scan(&major); err != nil {
		return err
	}
	if c.programs, err = findPrograms(ctx, major); err != nil {
		return err
	}
	if c.databases, err = connectable(ctx, c.source); err != nil {
		return err
	}
	return c.checkExtraDatabases(ctx)
}

func (c *schemaCopy) checkExtraDatabases(ctx context.Context) error {
	theirs, err := connectable(ctx, c.target)
	if err != nil {
		return err
	}
	for _, d := range theirs {
		if !slices.Contains(c.databases, d) {
			return fmt.Errorf("the target has a database %s that the home node has not; drop it, or use an empty server", quoteIdent(d))
		}
	}
	return nil
}

func (c *schemaCopy) copyRoles(ctx context.Context) error {
	warnings, err := copyRoles(ctx, c.source, c.target)
	c.warnings = append(c.warnings, warnings...)
	return err
}

func (c *schemaCopy) copySettings(ctx context.Context) error {
	return copySettings(ctx, c.source, c.target)
}

// databasesSQL writes the statements that make a database of the target like the source's.
const databasesSQL = `
SELECT datname, format('CREATE DATABASE %I TEMPLATE template0 ENCODING %L LC_COLLATE %L LC_CTYPE %L LOCALE_PROVIDER %s%s', datname,
		pg_encoding_to_char(encoding), datcollate, datctype,
		CASE datlocprovider WHEN 'i' THEN 'icu' WHEN 'b' THEN 'builtin' ELSE 'libc' END,
		CASE datlocprovider WHEN 'i' THEN ' ICU_LOCALE ' || quote_literal(coalesce(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale'))
			WHEN 'b' THEN ' BUILTIN_LOCALE ' || quote_literal(to_jsonb(d) ->> 'datlocale') ELSE '' END),
	format('ALTER DATABASE %I OWNER TO %I', datname, pg_get_userbyid(datdba)),
	format('ALTER DATABASE %I CONNECTION LIMIT %s', datname, datconnlimit),
	format('ALTER DATABASE %I IS_TEMPLATE %s', datname, datistemplate::text),
	format('COMMENT ON DATABASE %I IS %L', datname, shobj_description(d.oid, 'pg_database')),
	coalesce((SELECT string_agg(format('GRANT %s ON DATABASE %I TO %s%s', x.privilege_type, datname,
			CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(x.grantee)) END,
			CASE WHEN x.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END), '; ' ORDER BY x.grantee, x.privilege_type)
		FROM aclexplode(datacl) x), ''),
	format('REVOKE ALL ON DATABASE %I FROM PUBLIC, %I', datname, pg_get_userbyid(datdba))
FROM pg_database d WHERE datallowconn ORDER BY datname`

func (c *schemaCopy) copyDatabases(ctx context.Context) error {
	rows, err := c.source.Query(ctx, databasesSQL)
	if err != nil {
		return fmt.Errorf("read the databases: %w", err)
	}
	type database struct{ Name, Create, Owner, Limit, Template, Comment, Grants, Revoke string }
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[database])
	if err != nil {
		return fmt.Errorf("read the databases: %w", err)
	}
	theirs, err := connectable(ctx, c.target)
	if err != nil {
		return err
	}
	for _, d := range list {
		var statements []string
		if !slices.Contains(theirs, d.Name) {
			statements = append(statements, d.Create)
		}
		statements = append(statements, d.Owner, d.Limit, d.Template, d.Comment)
		if d.Grants != "" {
			statements = append(statements, d.Revoke, d.Grants)
		}
		for _, s := range statements {
			if _, err := c.target.Exec(ctx, s, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("create database %s: %w", d.Name, err)
			}
		}
	}
	return nil
}

func (c *schemaCopy) copyDatabase(ctx context.Context, database string) error {
	// A new database was made from template0, which no bootstrap reaches.
	router, err := c.routerRole(ctx)
	if err != nil {
		return err
	}
	if err := bootstrapDatabase(ctx, c.to.config, database, c.identity, router); err != nil {
		return err
	}
	target, err := connectTo(ctx, c.to.config, database)
	if err != nil {
		return err
	}
	defer target.Close(context.WithoutCancel(ctx))
	source, err := connectTo(ctx, c.from.config, database)
	if err != nil {
		return err
	}
	defer source.Close(context.WithoutCancel(ctx))
	objects, err := userObjects(ctx, target)
	if err != nil {
		return err
	}
	if len(objects) == 0 {
		if err := c.preparePublic(ctx, source, target); err != nil {
			return err
		}
		if err := c.dumpAndRestore(ctx, database); err != nil {
			return err
		}
	} else if same, err := c.sameSchema(ctx, database); err != nil {
		return err
	} else if !same {
		return fmt.Errorf("the target has objects already (%s); drop them, or use an empty server", strings.Join(objects, ", "))
	}
	if err := copyPlacements(ctx, source, target); err != nil {
		return err
	}
	return c.placeSequences(ctx, target)
}

// routerRole finds the routers' role by what it was granted.
func (c *schemaCopy) routerRole(ctx context.Context) (RouterRole, error) {
	var name string
	err := c.target.QueryRow(ctx, `SELECT pg_get_userbyid(x.grantee) FROM pg_proc p, aclexplode(p.proacl) x
		WHERE p.oid = 'pg_shoal.verifier(name)'::regprocedure AND x.grantee <> p.proowner`).Scan(&name)
	if err != nil {
		return RouterRole{}, fmt.Errorf("find the routers' role: %w", err)
	}
	return RouterRole{Name: name}, nil
}

// userObjects names up to five objects that are not there after initdb and bootstrap.
func userObjects(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, `
		SELECT i.type || ' ' || i.identity
		FROM (SELECT 'pg_class'::regclass AS class, oid, relnamespace AS nsp FROM pg_class WHERE relpersistence <> 't'
			UNION ALL SELECT 'pg_proc'::regclass, oid, pronamespace FROM pg_proc
			UNION ALL SELECT 'pg_type'::regclass, oid, typnamespace FROM pg_type
			UNION ALL SELECT 'pg_namespace'::regclass, oid, oid FROM pg_namespace
			UNION ALL SELECT 'pg_extension'::regclass, oid, 0 FROM pg_extension) o
		LEFT JOIN pg_namespace n ON n.oid = o.nsp
		CROSS JOIN LATERAL pg_identify_object(o.class, o.oid, 0) i
		WHERE o.oid >= 16384 AND (n.oid IS NULL OR n.nspname !~ '^pg_')
		ORDER BY o.oid LIMIT 5`)
	if err != nil {
		return nil, fmt.Errorf("look for objects: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// sameSchema tells whether an earlier run restored the dump; what comes after it is idempotent.
func (c *schemaCopy) sameSchema(ctx context.Context, database string) (bool, error) {
	_, sql, _ := strings.Cut(diffSQL, databasePart)
	home, other := snapshot{}, snapshot{}
	if err := home.readDatabase(ctx, c.from.config, database, sql); err != nil {
		return false, err
	}
	if err := other.readDatabase(ctx, c.to.config, database, sql); err != nil {
		return false, err
	}
	home[databaseObject(database)], other[databaseObject(database)] = "", ""
	differs := slices.ContainsFunc(compareSnapshots(c.identity.Name, home, other), func(d Difference) bool {
		return d.Kind != placementKind
	})
	return !differs, nil
}

// preparePublic drops the schema public where the source has none: a dump does not say so.
func (c *schemaCopy) preparePublic(ctx context.Context, source, target *pgx.Conn) error {
	var exists bool
	if err := source.QueryRow(ctx, `SELECT to_regnamespace('public') IS NOT NULL`).Scan(&exists); err != nil || exists {
		return err
	}
	_, err := target.Exec(ctx, `DROP SCHEMA IF EXISTS public`)
	return err
}

// dumpAndRestore runs pg_dump and then psql, all or nothing: psql would commit half a dump.
func (c *schemaCopy) dumpAndRestore(ctx context.Context, database string) error {
	dump := exec.CommandContext(ctx, filepath.Join(c.programs.dir, "pg_dump"),
		"--schema-only", "--no-tablespaces", "--no-publications", "--no-subscriptions", "--no-password")
	dump.Env = c.from.environment(database)
	script, err := runProgram(dump)
	if err != nil {
		return err
	}
	restore := exec.CommandContext(ctx, filepath.Join(c.programs.dir, "psql"),
		"--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", "--no-password")
	restore.Env, restore.Stdin = c.to.environment(database), bytes.NewReader(script)
	_, err = runProgram(restore)
	return err
}

// runProgram returns what a program printed, or an error with its own words.
func runProgram(cmd *exec.Cmd) ([]byte, error) {
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out, nil
}

// copyPlacements copies pg_shoal.schemas and pg_shoal.tables by names: OIDs and attribute numbers differ between nodes.
func copyPlacements(ctx context.Context, source, target *pgx.Conn) error {
	rows, err := source.Query(ctx, `
		SELECT format('%I.%I', n.nspname, c.relname), t.kind, t.distribution,
			ARRAY(SELECT a.attname::text FROM unnest(t.key_columns) WITH ORDINALITY k(num, n)
				JOIN pg_attribute a ON a.attrelid = t.relid AND a.attnum = k.num ORDER BY k.n)
		FROM pg_shoal.tables t JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname <> 'pg_shoal'`)
	if err != nil {
		return fmt.Errorf("read pg_shoal.tables: %w", err)
	}
	type placement struct {
		Table, Kind  string
		Distribution *int64
		Key          []string
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[placement])
	if err != nil {
		return fmt.Errorf("read pg_shoal.tables: %w", err)
	}
	return pgx.BeginFunc(ctx, target, func(tx pgx.Tx) error {
		for _, p := range list {
			if _, err := tx.Exec(ctx, `SELECT pg_shoal.set_table($1::text::regclass, $2, $3, $4::text[]::name[])`,
				p.Table, p.Kind, p.Distribution, p.Key); err != nil {
				return fmt.Errorf("place table %s: %w", p.Table, err)
			}
		}
		return copySchemaPlaces(ctx, source, tx)
	})
}

// copySchemaPlaces copies where distributed schemas live, which functions run where their key is, and by what the entries of directories are spread.
func copySchemaPlaces(ctx context.Context, source *pgx.Conn, target pgx.Tx) error {
	rows, err := source.Query(ctx, `
		SELECT format('SELECT pg_shoal.set_schema(%L, %s, %s)', n.nspname, s.distribution, s.entry)
		FROM pg_shoal.schemas s JOIN pg_namespace n ON n.oid = s.nspid
		UNION ALL
		SELECT format('SELECT pg_shoal.set_function(%L, %s, %s)', i.identity, f.distribution, f.argument)
		FROM pg_shoal.functions f JOIN pg_proc p ON p.oid = f.procid CROSS JOIN LATERAL pg_identify_object('pg_proc'::regclass, f.procid, 0) i
		UNION ALL
		SELECT format('SELECT pg_shoal.place_directory(%s)', t.distribution) FROM pg_shoal.tables t WHERE t.relid = 'pg_shoal.directory'::regclass`)
	if err != nil {
		return fmt.Errorf("read pg_shoal.schemas: %w", err)
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read pg_shoal.schemas: %w", err)
	}
	for _, sql := range statements {
		if _, err := target.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func (c *schemaCopy) placeSequences(ctx context.Context, target *pgx.Conn) error {
	rows, err := target.Query(ctx, `SELECT sequence, reason FROM pg_shoal.place_sequences() WHERE NOT placed`)
	if err != nil {
		return fmt.Errorf("place sequences: %w", err)
	}
	var sequence, reason string
	_, err = pgx.ForEachRow(rows, []any{&sequence, &reason}, func() error {
		c.warnings = append(c.warnings, fmt.Sprintf("sequence %s of database %s has no block of its own on node %s: %s",
			sequence, target.Config().Database, c.identity.Name, reason))
		return nil
	})
	if err != nil {
		return fmt.Errorf("place sequences: %w", err)
	}
	return nil
}
