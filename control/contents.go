package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// contents says what a server holds that a fresh one does not: databases, and user objects in those
// that accept connections. pg_shoal counts only if it is there.
func contents(ctx context.Context, server *pgx.ConnConfig) ([]string, error) {
	conn, err := pgx.ConnectConfig(ctx, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, `SELECT datname, datname IN ('postgres', 'template1') FROM pg_database
		WHERE datallowconn ORDER BY datname`)
	if err != nil {
		return nil, err
	}
	var found, databases []string
	var name string
	var standard bool
	if _, err := pgx.ForEachRow(rows, []any{&name, &standard}, func() error {
		databases = append(databases, name)
		if !standard {
			found = append(found, "database "+name)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for _, database := range databases {
		objects, err := objectsOf(ctx, server, database)
		if err != nil {
			return nil, fmt.Errorf("database %s: %w", database, err)
		}
		found = append(found, objects...)
	}
	return found, nil
}

const objectsSQL = `
	WITH own AS (SELECT oid, nspname FROM pg_namespace
		WHERE nspname NOT IN ('pg_catalog', 'information_schema') AND nspname NOT LIKE 'pg\_toast%' AND nspname NOT LIKE 'pg\_temp%')
	SELECT count(*), what FROM (
		SELECT CASE WHEN relkind IN ('r', 'p') THEN 'tables' ELSE 'other relations' END AS what
			FROM pg_class JOIN own ON own.oid = relnamespace WHERE nspname <> 'pg_shoal' AND relkind <> 'i'
		UNION ALL SELECT 'functions' FROM pg_proc JOIN own ON own.oid = pronamespace WHERE nspname <> 'pg_shoal'
		UNION ALL SELECT 'types' FROM pg_type JOIN own ON own.oid = typnamespace
			WHERE nspname <> 'pg_shoal' AND typrelid = 0 AND typelem = 0
		UNION ALL SELECT 'schemas' FROM own WHERE nspname NOT IN ('public', 'pg_shoal')
		UNION ALL SELECT 'schema pg_shoal' FROM own WHERE nspname = 'pg_shoal'
	) AS found GROUP BY what ORDER BY what`

func objectsOf(ctx context.Context, server *pgx.ConnConfig, database string) ([]string, error) {
	cfg := server.Copy()
	cfg.Database = database
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, objectsSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var n int
		var what string
		err := row.Scan(&n, &what)
		if what == "schema pg_shoal" {
			return fmt.Sprintf("%s in database %s", what, database), err
		}
		return fmt.Sprintf("%d %s in database %s", n, what, database), err
	})
}

// remains says what a failed join has left on the server, as the server itself tells.
func (j *join) remains(ctx context.Context) string {
	found, err := contents(ctx, j.server.config)
	if err != nil {
		return " The server may hold parts of the schema now; initialise it again before the next try."
	}
	if len(found) == 0 {
		return " Nothing of it remains on the server."
	}
	return " On the server remain: " + strings.Join(found, ", ") + ". Initialise it again before the next try."
}
