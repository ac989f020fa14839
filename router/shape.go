package router

import (
	"context"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
)

// shape writes the statement that makes a table like one the home node has just made from a query over
// temporary tables, which no other node has.
func (s *session) shape(ctx context.Context, m *keyspace.Map, shape *plan.Shape) (string, error) {
	schema := "pg_catalog.current_schema()"
	if shape.Schema != "" {
		schema = plan.QuoteLiteral(shape.Schema)
	}
	exists := ""
	if shape.IfNotExists {
		exists = "IF NOT EXISTS "
	}
	home, err := s.participant(ctx, m.Home)
	if err != nil {
		return "", err
	}
	var text string
	err = s.inUTF8(ctx, func() error {
		rows, err := home.conn.Query(ctx, `SELECT pg_catalog.concat('CREATE ', CASE c.relpersistence WHEN 'u' THEN 'UNLOGGED ' END, 'TABLE `+exists+`',
				pg_catalog.quote_ident(n.nspname), '.', pg_catalog.quote_ident(c.relname), ' (', (SELECT pg_catalog.string_agg(pg_catalog.concat(
					pg_catalog.quote_ident(a.attname), ' ', pg_catalog.format_type(a.atttypid, a.atttypmod),
					' COLLATE ' || pg_catalog.quote_ident(cn.nspname) || '.' || pg_catalog.quote_ident(l.collname)), ', ' ORDER BY a.attnum)
				FROM pg_catalog.pg_attribute a
				LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation LEFT JOIN pg_catalog.pg_namespace cn ON cn.oid = l.collnamespace
				WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), ') USING ', pg_catalog.quote_ident(am.amname),
				' WITH (' || pg_catalog.array_to_string(c.reloptions, ', ') || ')', ' TABLESPACE ' || pg_catalog.quote_ident(t.spcname))
			FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN pg_catalog.pg_am am ON am.oid = c.relam
			LEFT JOIN pg_catalog.pg_tablespace t ON t.oid = c.reltablespace
			WHERE c.relname = `+plan.QuoteLiteral(shape.Name)+` AND n.nspname = `+schema)
		if err == nil && len(rows) == 1 {
			text = string(rows[0][0])
		}
		return err
	})
	return text, err
}
