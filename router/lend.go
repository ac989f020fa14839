package router

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// withLent runs work on the home node while tables there have the rows of all nodes. Rows of other nodes stand in temporary tables that
// inherit from theirs: whoever reads the table in this transaction reads them, too, and nobody else ever does.
func (s *session) withLent(ctx context.Context, m *keyspace.Map, tables []plan.Lent, work func() error) error {
	if len(tables) == 0 {
		return work()
	}
	home, err := s.participant(ctx, m.Home)
	if err == nil {
		err = s.flushPreamble(home)
	}
	if err != nil {
		return err
	}
	if s.readsAtomically() && !s.txn.aligned {
		return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "a materialized view over several nodes is filled atomically only in a transaction with one snapshot").
			WithHint("Use BEGIN ISOLATION LEVEL REPEATABLE READ after SET %s.", readConsistency)
	}
	limit := s.exchangeLimit()
	names := make([]string, len(tables))
	for i := range tables {
		names[i] = fmt.Sprintf(`pg_temp."shoal rows %d"`, i+1)
		if err := s.borrow(ctx, m, home.conn, &tables[i], names[i], &limit); err != nil {
			return err
		}
	}
	if err := work(); err != nil {
		return err
	}
	return home.conn.Exec(ctx, "DROP TABLE "+strings.Join(names, ", "))
}

// borrow fills one such table. What it holds counts against the limit of what a statement may move.
func (s *session) borrow(ctx context.Context, m *keyspace.Map, home *pool.Conn, t *plan.Lent, name string, limit *int64) error {
	if err := home.Exec(ctx, "CREATE TABLE "+name+" () INHERITS ("+t.Table+")"); err != nil {
		return err
	}
	columns := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		columns[i] = plan.QuoteIdent(c)
	}
	list, format := strings.Join(columns, ", "), ""
	if t.Binary {
		format = " (FORMAT binary)"
	}
	for _, node := range homeFirst(m)[1:] {
		part, err := s.participant(ctx, node)
		if err == nil {
			err = s.flushPreamble(part)
		}
		if err != nil {
			return err
		}
		part.conn.SendQuery("COPY (SELECT " + list + " FROM ONLY " + t.Table + ") TO STDOUT" + format)
		home.SendQuery("COPY " + name + " (" + list + ") FROM STDIN" + format)
		if _, err := pipe(part.conn, home); err != nil {
			return onNode(node, err)
		}
	}
	rows, err := home.Query(ctx, "SELECT pg_catalog.pg_relation_size("+plan.QuoteLiteral(name)+")")
	if err != nil {
		return err
	}
	size, err := strconv.ParseInt(string(rows[0][0]), 10, 64)
	if err != nil {
		return err
	}
	if *limit -= size; *limit < 0 {
		return pgwire.Errorf("54000", "the statement moves more than %d bytes of rows between nodes", s.exchangeLimit()).
			WithHint("Raise %s.", maxExchange)
	}
	return nil
}
