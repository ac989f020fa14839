package catalog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
)

// copyBuffer is how much of a COPY stream is collected before it goes on: the driver hands over
// single rows, and passing each through a pipe would cost more than copying it.
const copyBuffer = 256 << 10

// CopyReferenceTables makes the rows of all reference tables of the target those of the home node,
// in every database. Each database is read in one snapshot and written in one transaction, so
// a copy that broke off changed nothing and can be repeated. Whoever calls it holds writes to
// reference tables back.
func CopyReferenceTables(ctx context.Context, from, to string) error {
	c, err := openCopy(ctx, from, to)
	if err != nil {
		return fmt.Errorf("copy reference tables: %w", err)
	}
	defer c.close(ctx)
	databases, err := connectable(ctx, c.source)
	if err != nil {
		return fmt.Errorf("copy reference tables: %w", err)
	}
	for _, database := range databases {
		if err := c.copyReferenceRows(ctx, database); err != nil {
			return fmt.Errorf("copy reference tables of database %s: %w", database, err)
		}
	}
	return nil
}

func (c *schemaCopy) copyReferenceRows(ctx context.Context, database string) error {
	source, err := connectTo(ctx, c.from.config, database)
	if err != nil {
		return err
	}
	defer source.Close(context.WithoutCancel(ctx))
	snapshot, err := source.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	tables, err := referenceTables(ctx, snapshot)
	if err != nil || len(tables) == 0 {
		return err
	}
	target, err := connectTo(ctx, c.to.config, database)
	if err != nil {
		return err
	}
	defer target.Close(context.WithoutCancel(ctx))
	return pgx.BeginFunc(ctx, target, func(tx pgx.Tx) error {
		// The rows passed triggers and foreign keys when they were written on the home node.
		if _, err := tx.Exec(ctx, `SET LOCAL session_replication_role = replica`); err != nil {
			return err
		}
		for _, t := range tables {
			if err := replaceRows(ctx, source, target, t); err != nil {
				return fmt.Errorf("table %s: %w", t.Name, err)
			}
		}
		return nil
	})
}

// replaceRows writes as the table's owner: constraints, generated columns and triggers may call
// functions of that role, which must not run with a superuser's rights.
func replaceRows(ctx context.Context, source, target *pgx.Conn, t copiedTable) error {
	if t.Refusal != "" {
		return errors.New(t.Refusal)
	}
	if _, err := target.Exec(ctx, "SET LOCAL ROLE "+t.Owner); err != nil {
		return err
	}
	if _, err := target.Exec(ctx, "DELETE FROM "+t.Rows); err != nil {
		return fmt.Errorf("empty it: %w", err)
	}
	if err := copyRows(ctx, source, target, t); err != nil {
		return err
	}
	_, err := target.Exec(ctx, "SET LOCAL ROLE NONE")
	return err
}

// copiedTable is a table whose rows are copied, with everything quoted.
type copiedTable struct {
	Name    string
	Rows    string // what holds its own rows: ONLY, unless they are in partitions
	Owner   string
	Columns string
	Format  string
	Refusal string // why the owner could not write it
}

func referenceTables(ctx context.Context, tx pgx.Tx) ([]copiedTable, error) {
	// Binary, unless a value holds an OID, which differs between nodes, or has no binary form.
	rows, err := tx.Query(ctx, `
		SELECT format('%I.%I', n.nspname, c.relname), format('%s %I.%I', CASE c.relkind WHEN 'p' THEN '' ELSE 'ONLY' END, n.nspname, c.relname),
			quote_ident(o.rolname), string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),
			CASE WHEN bool_or(b.typsend = 0 OR b.typreceive = 0 OR b.typtype = 'c' OR b.typname ~ '^reg')
				THEN 'text' ELSE 'binary' END,
			CASE WHEN NOT has_schema_privilege(o.oid, n.oid, 'USAGE')
				THEN format('its owner %I may not use schema %I; run GRANT USAGE ON SCHEMA %I TO %I', o.rolname, n.nspname, n.nspname, o.rolname)
				WHEN c.relrowsecurity AND c.relforcerowsecurity AND NOT (o.rolsuper OR o.rolbypassrls)
				THEN 'row security is forced on its owner; run ALTER TABLE ... NO FORCE ROW LEVEL SECURITY until the rows are copied'
				ELSE '' END
		FROM pg_shoal.tables s JOIN pg_class c ON c.oid = s.relid JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_roles o ON o.oid = c.relowner
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		JOIN pg_type t ON t.oid = a.atttypid
		LEFT JOIN pg_type d ON d.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype END
		LEFT JOIN pg_type e ON e.oid = CASE WHEN coalesce(d.typcategory, t.typcategory) = 'A' THEN coalesce(d.typelem, t.typelem) END
		JOIN pg_type b ON b.oid = coalesce(e.oid, d.oid, t.oid)
		WHERE s.kind = 'reference' AND NOT c.relispartition
		GROUP BY n.oid, n.nspname, c.relname, c.relkind, c.relrowsecurity, c.relforcerowsecurity, o.oid, o.rolname, o.rolsuper, o.rolbypassrls
		ORDER BY 1`)
	if err != nil {
		return nil, fmt.Errorf("list reference tables: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[copiedTable])
}

// copyRows streams a table from one connection to the other.
func copyRows(ctx context.Context, source, target *pgx.Conn, t copiedTable) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reader, writer := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		buffered := bufio.NewWriterSize(writer, copyBuffer)
		// A query and not the table, which may be partitioned.
		query := fmt.Sprintf("COPY (SELECT %s FROM %s) TO STDOUT (FORMAT %s)", t.Columns, t.Rows, t.Format)
		_, err := source.PgConn().CopyTo(ctx, buffered, query)
		if err == nil {
			err = buffered.Flush()
		}
		writer.CloseWithError(err) // nil is the end of the stream
		sent <- err
	}()
	_, err := target.PgConn().CopyFrom(ctx, bufio.NewReaderSize(reader, copyBuffer),
		fmt.Sprintf("COPY %s (%s) FROM STDIN (FORMAT %s)", t.Name, t.Columns, t.Format))
	reader.CloseWithError(errors.Join(err, io.ErrClosedPipe))
	if sendErr := <-sent; err == nil {
		err = sendErr
	}
	return err
}
