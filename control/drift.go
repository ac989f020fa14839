package control

import (
	"context"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// Drift is how the schema of the nodes differs from the home node's.
type Drift struct {
	Home        string               `json:"home"`
	Differences []catalog.Difference `json:"differences"`
	// Unchecked are nodes that do not serve yet.
	Unchecked []string `json:"unchecked,omitempty"`
}

func (c *Controller) schemaDiff(ctx context.Context, m *keyspace.Map, database string) (*Drift, error) {
	d := &Drift{Home: m.Home, Differences: []catalog.Difference{}}
	var home catalog.Source
	var others []catalog.Source
	for _, n := range m.Nodes {
		cfg, err := c.cfg.Access.Config(n, "")
		if err != nil {
			return nil, err
		}
		node := catalog.Source{Node: n.Name, Config: cfg}
		switch {
		case n.Name == m.Home:
			home = node
		case n.State == keyspace.NodeJoining:
			d.Unchecked = append(d.Unchecked, n.Name)
		default:
			others = append(others, node)
		}
	}
	found, err := catalog.Diff(ctx, home, others...)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		// Roles and the like belong to no database and so to all of them.
		if database == "" || f.Database == "" || f.Database == database {
			d.Differences = append(d.Differences, f)
		}
	}
	return d, nil
}
