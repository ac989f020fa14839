package router

import (
	"context"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
)

// show answers SHOW of pgshoal's own views; every other setting is the home node's.
func (s *session) show(ctx context.Context, st *plannedStatement) error {
	name := strings.ToLower(st.tree.Tree.GetVariableShowStmt().GetName())
	if s.txn.failed {
		return errAborted()
	}
	columns, rows, err := s.shoalView(ctx, name)
	if err != nil {
		return err
	}
	out := s.client.Out()
	*out = pgwire.AppendRowDescription(*out, textColumns(columns))
	for _, r := range rows {
		for i := range r {
			r[i] = []byte(s.forClient(string(r[i])))
		}
		*out = pgwire.AppendDataRow(*out, r)
	}
	s.complete("SHOW")
	return nil
}

func textColumns(names []string) []pgwire.Column {
	out := make([]pgwire.Column, len(names))
	for i, n := range names {
		out[i] = pgwire.TextColumn(n)
	}
	return out
}

// shoalColumns are the columns of each view, which Describe needs before the rows.
var shoalColumns = map[string][]string{
	"shoal.epoch":     {"epoch"},
	"shoal.functions": {"schema", "name", "arguments", "key", "distribution"},
	"shoal.load":      {"shard", "distribution", "node", "sampled", "statements_per_second", "median", "point"},
	"shoal.nodes":     {"name", "id", "state", "home", "region", "weight", "addresses", "shards"},
	"shoal.regions":   {"distribution", "region", "values", "is_default", "nodes"},
	"shoal.shards":    {"id", "distribution", "low", "high", "node", "region"},
	"shoal.tables":    {"schema", "name", "kind", "distribution", "key", "shards", "strategy"},

	"shoal.transactions": {"id", "age", "nodes", "state", "decider", "router"},
}

func (s *session) shoalView(ctx context.Context, name string) ([]string, [][][]byte, error) {
	columns, ok := shoalColumns[name]
	if !ok {
		return nil, nil, pgwire.Errorf("42704", "unrecognized configuration parameter %q", name).
			WithHint("There are shoal.functions, shoal.load, shoal.nodes, shoal.regions, shoal.shards, shoal.tables, shoal.transactions and shoal.epoch.")
	}
	v := s.router.view.Load()
	var rows [][][]byte
	switch name {
	case "shoal.epoch":
		rows = [][][]byte{row(strconv.FormatUint(v.m.Epoch, 10))}
	case "shoal.nodes":
		for _, n := range v.m.Nodes {
			rows = append(rows, row(n.Name, itoa(n.ID), string(n.State), strconv.FormatBool(n.Name == v.m.Home), n.Region,
				strconv.FormatFloat(n.Weight, 'g', -1, 64), strings.Join(n.Addresses, ","), itoa(v.m.ShardsOf(n.Name))))
		}
	case "shoal.load":
		rows = s.router.loadRows(v.m, s.database)
	case "shoal.shards":
		rows = shardRows(v.m, s.database)
	case "shoal.transactions":
		rows = s.transactionRows(ctx, v.m)
	case "shoal.regions":
		rows = regionRows(v.m, s.database)
	case "shoal.functions":
		cat, err := s.catalog(ctx, v)
		if err != nil {
			return nil, nil, err
		}
		rows = functionRows(cat)
	case "shoal.tables":
		cat, err := s.catalog(ctx, v)
		if err != nil {
			return nil, nil, err
		}
		rows = tableRows(v.m, cat)
	}
	return columns, rows, nil
}

func row(values ...string) [][]byte {
	out := make([][]byte, len(values))
	for i, v := range values {
		out[i] = []byte(v)
	}
	return out
}

// shardRows shows bounds in the key's own terms; an empty one is the start or the end of the space.
func shardRows(m *keyspace.Map, database string) [][][]byte {
	regions := map[string]string{}
	for _, n := range m.Nodes {
		regions[n.Name] = n.Region
	}
	var rows [][][]byte
	for _, d := range m.Distributions {
		if d.Database != database {
			continue
		}
		for i := range d.Shards {
			low, high := d.Interval(i)
			rows = append(rows, row(strconv.FormatUint(uint64(d.Shards[i].ID), 10), strconv.FormatUint(uint64(d.ID), 10),
				d.FormatBound(low), d.FormatBound(high), d.Shards[i].Node, regions[d.Shards[i].Node]))
		}
	}
	return rows
}

// regionRows shows which values of a list live in which region, and the nodes there.
func regionRows(m *keyspace.Map, database string) [][][]byte {
	nodes := map[string][]string{}
	for _, n := range m.Nodes {
		nodes[n.Region] = append(nodes[n.Region], n.Name)
	}
	var rows [][][]byte
	for _, d := range m.Distributions {
		if d.Database != database {
			continue
		}
		for _, dim := range d.Dimensions {
			for _, r := range dim.Regions {
				rows = append(rows, row(strconv.FormatUint(uint64(d.ID), 10), r.Name, strings.Join(r.Values, ", "),
					strconv.FormatBool(r.Name == dim.Default), strings.Join(nodes[r.Name], ", ")))
			}
		}
	}
	return rows
}

func tableRows(m *keyspace.Map, cat *catalog.Catalog) [][][]byte {
	var rows [][][]byte
	for _, t := range cat.Tables() {
		if t.Kind != catalog.KindTable && t.Kind != catalog.KindPartitioned || t.IsPartition || t.Schema == "pg_shoal" {
			continue
		}
		distribution, shards, strategy := "", "", ""
		if d := m.Distribution(t.Distribution); d != nil && t.Placement == catalog.Distributed {
			distribution, shards = strconv.FormatUint(uint64(d.ID), 10), itoa(len(d.Shards))
			strategy = d.StrategyOf(t.KeyColumns())
		}
		rows = append(rows, row(t.Schema, t.Name, t.Placement.String(), distribution, strings.Join(t.KeyColumns(), ", "), shards, strategy))
	}
	return rows
}

// functionRows shows the functions whose calls run where their key is.
func functionRows(cat *catalog.Catalog) [][][]byte {
	var rows [][][]byte
	for _, f := range cat.UserFunctions() {
		if f.KeyArg == 0 {
			continue
		}
		types := make([]string, len(f.Args))
		for i, oid := range f.Args {
			t, _ := cat.Type(oid)
			types[i] = t.Name
		}
		key := "$" + itoa(f.KeyArg)
		if f.KeyName != "" {
			key = f.KeyName
		}
		rows = append(rows, row(f.Schema, f.Name, strings.Join(types, ", "), key, strconv.FormatUint(uint64(f.Distribution), 10)))
	}
	return rows
}
