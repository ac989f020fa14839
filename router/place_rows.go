package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// spread moves the rows that the home node does not own.
func (p *placement) spread(ctx context.Context, d *keyspace.Distribution, key *tableKey) error {
	if err := p.emptyOthers(ctx); err != nil {
		return err
	}
	var moved int64
	for _, node := range homeFirst(p.m)[1:] {
		where, err := key.condition(p.table, d, node)
		if err != nil {
			return err
		}
		if where == "" {
			continue
		}
		n, err := p.copyRows(ctx, p.home, p.s.txn.part(node).conn, where)
		if err != nil {
			return onNode(node, err)
		}
		moved += n
	}
	filters, err := key.filters(d, p.m.Home)
	if err != nil {
		return err
	}
	removed, err := removeRows(ctx, p.home, p.name, filters)
	if err != nil {
		return err
	}
	// Each row is copied once or stays: whatever else the two conditions say must not cost a row.
	if removed != moved {
		return fmt.Errorf("distributing %s: %d rows were copied to other nodes and %d removed from the home node", p.name, moved, removed)
	}
	return nil
}

// checkKeys refuses rows that have no place: without a key, or with a value that has no region.
func (p *placement) checkKeys(ctx context.Context, key *tableKey) error {
	for _, c := range key.columns {
		column := &p.table.Columns[c]
		rows, err := p.home.Query(ctx, "SELECT EXISTS (SELECT FROM "+p.name+" WHERE "+plan.QuoteIdent(column.Name)+" IS NULL)")
		if err != nil {
			return err
		}
		if string(rows[0][0]) == "t" {
			return pgwire.Errorf("23502", "column %q of relation %q contains null values", column.Name, p.table.Name).
				WithHint("A key is never null: give these rows a key first.")
		}
	}
	list := &key.key.Dimensions[0]
	if list.Method != keyspace.List || list.Default != "" {
		return nil
	}
	var listed []string
	for _, r := range list.Regions {
		for _, v := range r.Values {
			listed = append(listed, plan.QuoteLiteral(v)+"::"+key.types[list.Columns[0]].SQL())
		}
	}
	column := &p.table.Columns[key.columns[list.Columns[0]]]
	name := plan.QuoteIdent(column.Name)
	rows, err := p.home.Query(ctx, "SELECT "+name+"::pg_catalog.text FROM "+p.name+" WHERE "+name+" NOT IN ("+strings.Join(listed, ", ")+") LIMIT 1")
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		return homelessError(&exec.Homeless{Column: p.table.Name + "." + column.Name, Value: string(rows[0][0])})
	}
	return nil
}

// removeRows deletes the rows of a node that no filter holds for.
func removeRows(ctx context.Context, c *pool.Conn, table string, keep []keyspace.Filter) (int64, error) {
	return callRemoveRows(ctx, c, table, keep, "false")
}

// removeThose deletes the rows of a node that a filter holds for.
func removeThose(ctx context.Context, c *pool.Conn, table string, gone []keyspace.Filter) (int64, error) {
	return callRemoveRows(ctx, c, table, gone, "true")
}

func callRemoveRows(ctx context.Context, c *pool.Conn, table string, filters []keyspace.Filter, those string) (int64, error) {
	if filters == nil {
		filters = []keyspace.Filter{}
	}
	data, err := json.Marshal(filters)
	if err != nil {
		return 0, err
	}
	rows, err := c.Query(ctx, "SELECT pg_shoal.remove_rows("+plan.QuoteLiteral(table)+", "+plan.QuoteLiteral(string(data))+", "+those+")")
	if err != nil {
		return 0, withoutContext(err)
	}
	return strconv.ParseInt(string(rows[0][0]), 10, 64)
}

// emptyOthers removes what a routine may have left in a local table on other nodes than home.
func (p *placement) emptyOthers(ctx context.Context) error {
	return p.onOthers(ctx, func(c *pool.Conn) error {
		_, err := removeRows(ctx, c, p.name, nil)
		return err
	})
}

// copyRows streams rows from one node to another, in both nodes' transactions.
func (p *placement) copyRows(ctx context.Context, from, to *pool.Conn, where string) (int64, error) {
	var columns []string
	for i := range p.table.Columns {
		if p.table.Columns[i].Generated == 0 {
			columns = append(columns, plan.QuoteIdent(p.table.Columns[i].Name))
		}
	}
	list := strings.Join(columns, ", ")
	restore, err := p.quietTriggers(ctx, to)
	if err != nil {
		return 0, err
	}
	from.SendQuery("COPY (SELECT " + list + " FROM " + p.name + " WHERE " + where + ") TO STDOUT (FORMAT binary)")
	to.SendQuery("COPY " + p.name + " (" + list + ") FROM STDIN (FORMAT binary)")
	copied, err := pipe(from, to)
	if err != nil {
		return 0, parentsFirst(err)
	}
	return copied, restore()
}

// parentsFirst tells what to do about a foreign key: it is checked while rows arrive.
func parentsFirst(err error) error {
	var e *pgwire.Error
	if errors.As(err, &e) && e.Code == "23503" && e.Hint == "" {
		out := *e
		return out.WithHint("In one transaction, change the placement of the referenced table first.")
	}
	return err
}

// quietTriggers switches the table's own triggers off while rows only change their place.
func (p *placement) quietTriggers(ctx context.Context, c *pool.Conn) (restore func() error, err error) {
	how := map[byte]string{'O': "ENABLE TRIGGER ", 'R': "ENABLE REPLICA TRIGGER ", 'A': "ENABLE ALWAYS TRIGGER "}
	for _, t := range p.table.Triggers {
		if how[t.Enabled] == "" {
			continue
		}
		if err := c.Exec(ctx, "ALTER TABLE "+p.name+" DISABLE TRIGGER "+plan.QuoteIdent(t.Name)); err != nil {
			return nil, err
		}
	}
	return func() error {
		for _, t := range p.table.Triggers {
			if how[t.Enabled] == "" {
				continue
			}
			if err := c.Exec(ctx, "ALTER TABLE "+p.name+" "+how[t.Enabled]+plan.QuoteIdent(t.Name)); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// pipe passes COPY data from one connection to another, reads both answers, and returns the number of rows.
func pipe(from, to *pool.Conn) (int64, error) {
	target := &copyTarget{part: &participant{node: to.Key.Node, conn: to}}
	if _, err := beginCopy(target.part); err != nil {
		from.Broken = true // its COPY was queued and not read
		return 0, err
	}
	if err := from.Stream.Flush(); err != nil {
		from.Broken = true
		return 0, lostNode(from.Key.Node)
	}
	var failure error
	for {
		typ, msg, err := from.Stream.Next()
		if err != nil {
			from.Broken = true
			_ = failCopies([]*copyTarget{target}, "the source is gone")
			return 0, lostNode(from.Key.Node)
		}
		switch typ {
		case 'd':
			to.Stream.Append(msg)
			if to.Stream.Pending() >= copyChunk {
				if err := to.Stream.Flush(); err != nil && !errors.Is(err, io.EOF) {
					to.Broken = true
				}
			}
		case 'E':
			failure = pgwire.ParseError(msg)
		case 'Z':
			from.TxStatus = pgwire.ReadyStatus(msg)
			if failure != nil {
				_ = failCopies([]*copyTarget{target}, "the source failed")
				return 0, failure
			}
			out := to.Stream.Out()
			*out = pgwire.AppendCopyDone(*out)
			if err := endCopies([]*copyTarget{target}); err != nil {
				return 0, err
			}
			return target.counted(), nil
		}
	}
}

// reference makes the table's rows the same on all nodes.
func (p *placement) reference(ctx context.Context) error {
	if err := p.mustBeLocal(); err != nil {
		return err
	}
	if err := p.emptyOthers(ctx); err != nil {
		return err
	}
	if err := p.everywhere(ctx, "SELECT pg_shoal.set_table("+plan.QuoteLiteral(p.name)+", 'reference', NULL, '{}')"); err != nil {
		return err
	}
	for _, node := range homeFirst(p.m)[1:] {
		if _, err := p.copyRows(ctx, p.home, p.s.txn.part(node).conn, "true"); err != nil {
			return onNode(node, err)
		}
	}
	return nil
}

// undistribute brings all rows back to the home node.
func (p *placement) undistribute(ctx context.Context) error {
	if p.table.Placement == catalog.Local {
		return pgwire.Errorf("55000", "table %q is not distributed", p.table.Name)
	}
	if p.inSchema() {
		return pgwire.Errorf("55000", "table %q is where its schema %q is", p.table.Name, p.table.Schema).
			WithHint("Call undistribute_schema('%s').", p.table.Schema)
	}
	if p.table.Placement == catalog.Distributed {
		for _, node := range homeFirst(p.m)[1:] {
			if _, err := p.copyRows(ctx, p.s.txn.part(node).conn, p.home, "true"); err != nil {
				return onNode(node, err)
			}
		}
	}
	if err := p.emptyOthers(ctx); err != nil {
		return err
	}
	return p.everywhere(ctx, "SELECT pg_shoal.unset_table("+plan.QuoteLiteral(p.name)+")")
}
