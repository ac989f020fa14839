package router

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/topo"
)

// distributePlan is what create_distributed_table would do.
type distributePlan struct {
	Table    string `json:"table"`
	Strategy string `json:"strategy"`
	// New is set when the distribution would be made; else the table would join distribution Distribution.
	New          bool        `json:"new"`
	Distribution uint32      `json:"distribution,omitempty"`
	Shards       int         `json:"shards"`
	Rows         int64       `json:"rows"`
	Nodes        []nodeShare `json:"nodes"`
	Intervals    []shardPlan `json:"intervals"`
}

// nodeShare is what a node would hold.
type nodeShare struct {
	Node   string `json:"node"`
	Region string `json:"region,omitempty"`
	Shards int    `json:"shards"`
	Rows   int64  `json:"rows"`
}

// shardPlan is one shard, with its bounds in the key's own terms; "" is the start or the end.
type shardPlan struct {
	Low  string `json:"low"`
	High string `json:"high"`
	Node string `json:"node"`
}

// explainPlacing says what create_distributed_table would do, and changes nothing.
func (s *session) explainPlacing(ctx context.Context, call *plan.Placing, values [][]byte) error {
	var d *distributePlan
	err := s.inTransaction(ctx, func() (err error) {
		d, err = s.planDistribution(ctx, call, values)
		return err
	})
	if err != nil {
		return err
	}
	out := s.client.Out()
	if values == nil {
		*out = pgwire.AppendRowDescription(*out, []pgwire.Column{explainColumn(call.Explain)})
	}
	lines := d.lines()
	if call.Explain == "json" {
		data, err := json.MarshalIndent([]*distributePlan{d}, "", "  ")
		if err != nil {
			return err
		}
		lines = []string{string(data)}
	}
	for _, line := range lines {
		*out = pgwire.AppendDataRow(*out, [][]byte{[]byte(line)})
	}
	s.complete("EXPLAIN")
	return nil
}

func explainColumn(format string) pgwire.Column {
	c := pgwire.TextColumn("QUERY PLAN")
	if format == "json" {
		c.TypeOID = 114
	}
	return c
}

func (s *session) planDistribution(ctx context.Context, call *plan.Placing, values [][]byte) (*distributePlan, error) {
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
	// Not the router's own view: it may not have seen yet what this transaction did.
	m, err := topo.LoadMap(ctx, s.router.store)
	if err != nil {
		return nil, schemaError(ctx, "reading the map", err)
	}
	p := &placement{s: s, m: m, home: home}
	if err := p.look(ctx, oid); err != nil {
		return nil, err
	}
	if err := p.mustBeLocal(); err != nil {
		return nil, err
	}
	spec, err := readSpec(args)
	if err != nil {
		return nil, err
	}
	key, d, err := p.resolve(ctx, spec)
	if err != nil {
		return nil, err
	}
	isNew := false
	if d == nil {
		layout, err := p.layout(ctx, spec, &key.key)
		if err != nil {
			return nil, err
		}
		next, chosen, err := chooseDistribution(p.m, s.database, spec, key, layout)
		if err != nil {
			return nil, err
		}
		isNew, p.m, d = next != p.m, next, chosen
	}
	if err := p.checkKeys(ctx, key); err != nil {
		return nil, err
	}
	if err := p.assignKeys(ctx, d, key, false); err != nil {
		return nil, err
	}
	return p.describe(ctx, key, d, isNew)
}

// describe counts the rows that each node would get.
func (p *placement) describe(ctx context.Context, key *tableKey, d *keyspace.Distribution, isNew bool) (*distributePlan, error) {
	out := &distributePlan{Table: p.table.Schema + "." + p.table.Name, New: isNew, Shards: len(d.Shards)}
	if !isNew {
		out.Distribution = d.ID
	}
	names := make([]string, len(key.columns))
	for i, c := range key.columns {
		names[i] = p.table.Columns[c].Name
	}
	out.Strategy = d.StrategyOf(names)
	for i, sh := range d.Shards {
		low, high := d.Interval(i)
		out.Intervals = append(out.Intervals, shardPlan{d.FormatBound(low), d.FormatBound(high), sh.Node})
	}
	for _, n := range p.m.Nodes {
		where, err := key.condition(p.table, d, n.Name)
		if err != nil {
			return nil, err
		}
		if where == "" {
			where = "false"
		}
		share := nodeShare{Node: n.Name, Region: n.Region}
		for i := range d.Shards {
			if d.Shards[i].Node == n.Name {
				share.Shards++
			}
		}
		if share.Shards == 0 {
			continue
		}
		rows, err := p.home.Query(ctx, "SELECT pg_catalog.count(*) FROM "+p.name+" WHERE "+where)
		if err != nil {
			return nil, err
		}
		if share.Rows, err = strconv.ParseInt(string(rows[0][0]), 10, 64); err != nil {
			return nil, err
		}
		out.Rows += share.Rows
		out.Nodes = append(out.Nodes, share)
	}
	return out, nil
}

// lines writes the plan as EXPLAIN does.
func (d *distributePlan) lines() []string {
	how := "a new distribution"
	if !d.New {
		how = fmt.Sprintf("distribution %d", d.Distribution)
	}
	lines := []string{
		fmt.Sprintf("Distribute %s  (by %s, shards: %d, rows: %d)", d.Table, d.Strategy, d.Shards, d.Rows),
		"  In " + how,
	}
	for _, n := range d.Nodes {
		where := n.Node
		if n.Region != "" {
			where += " in region " + n.Region
		}
		lines = append(lines, fmt.Sprintf("  ->  Node %s  (shards: %d, rows: %d)", where, n.Shards, n.Rows))
		for _, sh := range d.Intervals {
			if sh.Node == n.Node {
				lines = append(lines, "        Shard from "+orWord(sh.Low, "the start")+" to "+orWord(sh.High, "the end"))
			}
		}
	}
	return lines
}

func orWord(s, word string) string {
	if s == "" {
		return word
	}
	return s
}
