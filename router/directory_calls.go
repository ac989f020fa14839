package router

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// directoryCall is a call of directory_get and its relatives.
type directoryCall struct {
	*placement
	args map[string]string
	d    *keyspace.Distribution
	typ  keyspace.Type // the key column's own
}

// isDirectoryCall reports functions that look at entries or change them.
func isDirectoryCall(function string) bool { return strings.HasPrefix(function, "directory_") }

// directoryFunction runs such a call and returns its rows. Only who owns all tables of the directory may.
func (s *session) directoryFunction(ctx context.Context, call *plan.Placing, values [][]byte) ([][][]byte, error) {
	home, done, err := s.homeInTransaction(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	args, err := placingArgs(ctx, call, values, home)
	if err != nil {
		return nil, err
	}
	oid, err := tableOID(ctx, home, args["table_name"])
	if err != nil {
		return nil, err
	}
	v := s.router.view.Load()
	c := &directoryCall{placement: &placement{s: s, m: v.m, home: home}, args: args}
	if err := c.look(ctx, oid); err != nil {
		return nil, err
	}
	if c.d = v.m.Distribution(c.table.Distribution); c.table.Placement != catalog.Distributed || c.d == nil || c.d.Directory == nil {
		return nil, pgwire.Errorf("55000", "table %q is not distributed by a directory", c.table.Name)
	}
	if err := home.Exec(ctx, fmt.Sprintf("SELECT pg_shoal.check_directory(%d)", c.d.ID)); err != nil {
		return nil, withoutContext(err)
	}
	c.typ, _ = keyspace.TypeByOID(c.cat.BaseType(c.table.Columns[c.table.Key[0]].TypeOID))
	switch call.Function {
	case "directory_get":
		return c.get(ctx)
	case "directory_list":
		return c.list(ctx)
	case "directory_import":
		return c.importEntries(ctx)
	}
	return c.set(ctx)
}

func directoryColumns(function string) []string {
	if function == "directory_import" {
		return []string{"imported", "kept"}
	}
	return []string{"key", "shard", "node"}
}

// key has PostgreSQL read an argument in the type of the key column.
func (c *directoryCall) key(ctx context.Context, name string) (text, encoded []byte, err error) {
	if c.args[name] == "" && name == "key" {
		if _, given := c.args[name]; !given {
			return nil, nil, pgwire.Errorf("22004", "the key is missing")
		}
	}
	column := c.table.Columns[c.table.Key[0]].TypeName
	rows, err := c.home.QueryParams(ctx, "SELECT "+exec.CanonicalSQL(c.typ, "$1::pg_catalog.text::"+column), []byte(c.args[name]))
	if err != nil {
		return nil, nil, err
	}
	encoded, err = keyspace.AppendOrdered(nil, c.typ, keyspace.Value{Data: rows[0][0], From: c.typ})
	return rows[0][0], encoded, err
}

func (c *directoryCall) row(text string, entry uint64) [][]byte {
	shard := &c.d.Shards[c.d.FindEntry(entry)]
	return row(text, strconv.FormatUint(uint64(shard.ID), 10), shard.Node)
}

func (c *directoryCall) get(ctx context.Context) ([][][]byte, error) {
	text, key, err := c.key(ctx, "key")
	if err != nil {
		return nil, err
	}
	found, err := c.s.router.readEntries(ctx, c.m, c.d, [][]byte{key})
	if err != nil {
		return nil, err
	}
	if entry, known := found[string(key)]; known {
		return [][][]byte{c.row(string(text), entry)}, nil
	}
	return nil, nil
}

// maxListed bounds one page of a list.
const maxListed = 100000

// list returns a page of entries in the order of their keys.
func (c *directoryCall) list(ctx context.Context) ([][][]byte, error) {
	limit, err := readCount("limit", c.args["limit"], maxListed)
	if err != nil {
		return nil, err
	}
	if limit == 0 {
		limit = 1000
	}
	after := ""
	if _, given := c.args["after"]; given {
		_, key, err := c.key(ctx, "after")
		if err != nil {
			return nil, err
		}
		after = fmt.Sprintf(` AND key > '\x%x'`, key)
	}
	var page []newEntry
	sql := fmt.Sprintf("SELECT pg_catalog.encode(key, 'hex'), entry FROM pg_shoal.directory WHERE distribution = %d%s ORDER BY key LIMIT %d", c.d.ID, after, limit)
	for _, node := range c.holders() {
		if page, err = c.readPage(ctx, node, sql, page); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(page, func(a, b newEntry) int { return cmp.Compare(string(a.key), string(b.key)) })
	var rows [][][]byte
	for _, e := range page[:min(limit, len(page))] {
		text, err := c.d.FormatKey(e.key)
		if err != nil {
			return nil, err
		}
		rows = append(rows, c.row(text, e.entry))
	}
	return rows, nil
}

// holders are the nodes that have entries.
func (c *directoryCall) holders() []string {
	var nodes []string
	for _, s := range c.m.Distribution(c.d.Directory.Entries).Shards {
		if !slices.Contains(nodes, s.Node) {
			nodes = append(nodes, s.Node)
		}
	}
	return nodes
}

func (c *directoryCall) readPage(ctx context.Context, node, sql string, page []newEntry) ([]newEntry, error) {
	conn, err := c.s.router.service(ctx, node, c.s.database)
	if err != nil {
		return nil, err
	}
	defer c.s.router.pool.Release(conn)
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, onNode(node, err)
	}
	for _, r := range rows {
		key, entry, err := readEntry(r)
		if err != nil {
			return nil, err
		}
		page = append(page, newEntry{key, entry})
	}
	return page, nil
}

// importEntries makes entries for keys that have none: a JSON array of [key, shard or node] or [key]. A key that has an entry keeps it.
func (c *directoryCall) importEntries(ctx context.Context) ([][][]byte, error) {
	column := c.table.Columns[c.table.Key[0]].TypeName
	rows, err := c.home.QueryParams(ctx, "SELECT "+exec.CanonicalSQL(c.typ, "(e ->> 0)::"+column)+", e ->> 1 FROM pg_catalog.jsonb_array_elements($1::pg_catalog.jsonb) AS e", []byte(c.args["entries"]))
	if err != nil {
		return nil, err
	}
	load := &directoryLoad{}
	load.refresh(ctx, c.s.router, c.m, c.d)
	list := make([]newEntry, len(rows))
	for i, r := range rows {
		if r[0] == nil {
			return nil, pgwire.Errorf("22004", "a key is null")
		}
		if list[i].key, err = keyspace.AppendOrdered(nil, c.typ, keyspace.Value{Data: r[0], From: c.typ}); err != nil {
			return nil, err
		}
		if list[i].entry, err = c.place(load, string(r[1])); err != nil {
			return nil, err
		}
	}
	found, err := c.s.router.assignEntries(ctx, c.m, c.d, list)
	if err != nil {
		return nil, err
	}
	imported := 0
	for _, e := range list {
		if found[string(e.key)] == e.entry {
			imported++
		}
	}
	return [][][]byte{row(itoa(imported), itoa(len(list)-imported))}, nil
}

// place makes an entry in a shard that is given by its number, on a node that is given by its name, or where the load is least.
func (c *directoryCall) place(load *directoryLoad, where string) (uint64, error) {
	if id, err := strconv.ParseUint(where, 10, 32); err == nil {
		i := slices.IndexFunc(c.d.Shards, func(s keyspace.Shard) bool { return s.ID == uint32(id) })
		if i < 0 {
			return 0, pgwire.Errorf("22023", "shard %s is not one of this directory", where).WithHint("SHOW shoal.shards lists them.")
		}
		return entryIn(c.d, i), nil
	}
	if where != "" {
		if _, err := c.m.Node(where); err != nil {
			return 0, pgwire.Errorf("22023", "there is no node %q", where).WithHint("SHOW shoal.nodes lists them.")
		}
	}
	return load.choose(where, load.perKey)
}

// keyHex is a key as SQL.
func keyHex(key []byte) string { return `'\x` + hex.EncodeToString(key) + `'::pg_catalog.bytea` }

// keyCondition is the condition for the rows of one key in a table of the directory.
func (c *directoryCall) keyCondition(t *catalog.Table, text string) (keyspace.Filter, string) {
	f := c.d.KeysFilter([]string{text})
	column := &t.Columns[t.Key[0]]
	typ, _ := keyspace.TypeByOID(c.cat.BaseType(column.TypeOID))
	return f, f.SQL([]keyspace.FilterColumn{{SQL: plan.QuoteIdent(column.Name), Type: typ}})
}

// serviceExec runs a statement with the router's own role.
func (r *Router) serviceExec(ctx context.Context, node, database, sql string) error {
	conn, err := r.service(ctx, node, database)
	if err != nil {
		return err
	}
	defer r.pool.Release(conn)
	return onNode(node, conn.Exec(ctx, sql))
}

// tablesByReference puts tables in an order in which each comes after those that it refers to, as far as there is one.
func tablesByReference(tables []*catalog.Table) []*catalog.Table {
	var out []*catalog.Table
	seen := map[uint32]bool{}
	byOID := map[uint32]*catalog.Table{}
	for _, t := range tables {
		byOID[t.OID] = t
	}
	var visit func(t *catalog.Table)
	visit = func(t *catalog.Table) {
		if t == nil || seen[t.OID] {
			return
		}
		seen[t.OID] = true
		for _, f := range t.ForeignKeys {
			visit(byOID[f.RefTable])
		}
		out = append(out, t)
	}
	for _, t := range tables {
		visit(t)
	}
	return out
}

// moveRows moves rows of a table between two nodes in the transaction; a row is deleted where it was copied from, or nowhere.
func (p *placement) moveRows(ctx context.Context, from, to *pool.Conn, where string, gone []keyspace.Filter) error {
	copied, err := p.copyRows(ctx, from, to, where)
	if err != nil {
		return err
	}
	removed, err := removeThose(ctx, from, p.name, gone)
	if err != nil {
		return err
	}
	if copied != removed {
		return fmt.Errorf("moving rows of %s: %d were copied and %d removed", p.name, copied, removed)
	}
	return nil
}
