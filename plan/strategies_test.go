package plan_test

import (
	"strings"
	"testing"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// strategy is a distribution of the golden plans, cut at bounds that are written as in SplitAt.
type strategy struct {
	key    keyspace.Key
	shards int
	split  [][]string
}

func dimension(method keyspace.Method, columns ...int) keyspace.Dimension {
	return keyspace.Dimension{Method: method, Columns: columns}
}

func regions(fallback string, column int) keyspace.Dimension {
	return keyspace.Dimension{
		Method: keyspace.List, Columns: []int{column}, Default: fallback,
		Regions: []keyspace.Region{{Name: "eu", ID: 1, Values: []string{"de", "fr"}}, {Name: "us", ID: 2, Values: []string{"us", "ca"}}},
	}
}

// strategies are the distributions 8 to 17 of testdata/schema.sql.
func strategies() []strategy {
	const hash, ordered = keyspace.Hash, keyspace.Range
	key := func(types []keyspace.Type, dimensions ...keyspace.Dimension) keyspace.Key {
		return keyspace.Key{Types: types, Dimensions: dimensions}
	}
	integer, text, at := keyspace.Int8, keyspace.Text, keyspace.Timestamptz
	return []strategy{
		{key: keyspace.HashKey(integer, integer), shards: 12},
		{key: key([]keyspace.Type{at}, dimension(ordered, 0)), split: [][]string{{"2024-01-01 00:00:00+00"}, {"2025-01-01 00:00:00+00"}}},
		{key: key([]keyspace.Type{text, integer}, regions("us", 0), dimension(hash, 1)), shards: 4},
		{key: key([]keyspace.Type{integer, at}, dimension(hash, 0), dimension(ordered, 1)), shards: 12},
		{key: key([]keyspace.Type{text}, dimension(ordered, 0)), split: [][]string{{"h"}, {"p"}}},
		{key: key([]keyspace.Type{text}, regions("", 0), dimension(hash, 0)), shards: 1},
		{key: key([]keyspace.Type{text}, dimension(keyspace.Directory, 0)), shards: 12},
		{key: key(nil, dimension(keyspace.Schema)), shards: 12},
		{key: key([]keyspace.Type{integer, integer}, dimension(ordered, 0, 1)), split: [][]string{{"10", "5"}, {"20"}}},
		{key: key([]keyspace.Type{text, integer, at}, regions("", 0), dimension(hash, 1), dimension(ordered, 2)), shards: 2},
	}
}

func addStrategies(tb testing.TB, m *keyspace.Map, all ...strategy) *keyspace.Map {
	tb.Helper()
	for _, s := range all {
		layout := keyspace.Layout{Shards: s.shards}
		for _, values := range s.split {
			at, err := s.key.ParseBound(values)
			if err != nil {
				tb.Fatal(err)
			}
			layout.SplitAt = append(layout.SplitAt, at)
		}
		var err error
		if m, _, err = m.CreateDistribution("db", s.key, layout); err != nil {
			tb.Fatal(err)
		}
	}
	return m
}

// placeSchemas distributes the tables of the schemas tenant_1, tenant_2, ... by their schema.
func placeSchemas(c *catalog.Catalog) *catalog.Catalog {
	for _, t := range c.Tables() {
		if n, found := strings.CutPrefix(t.Schema, "tenant_"); found {
			t.Placement, t.Distribution, t.Entry = catalog.Distributed, 15, uint64(n[0]-'0')<<62
		}
	}
	return c
}

// onOneNode is the same map when the first node has everything.
func onOneNode(m *keyspace.Map) *keyspace.Map {
	one := *m
	one.Nodes, one.Distributions = m.Nodes[:1], nil
	for _, d := range m.Distributions {
		own := *d
		own.Shards = append([]keyspace.Shard{}, d.Shards...)
		for i := range own.Shards {
			own.Shards[i].Node = m.Nodes[0].Name
		}
		own.Index()
		one.Distributions = append(one.Distributions, &own)
	}
	return &one
}
