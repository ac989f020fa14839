package control

import (
	"context"
	"errors"
	"net/http"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

// NodeChange is what node set changes; what is nil stays.
type NodeChange struct {
	Region *string  `json:"region,omitempty"`
	Weight *float64 `json:"weight,omitempty"`
}

// SetNode changes the labels of a node.
func (c *Controller) SetNode(ctx context.Context, name string, change NodeChange) (*keyspace.Map, error) {
	m, err := topo.UpdateMap(ctx, c.store, func(m *keyspace.Map) (*keyspace.Map, error) {
		next, err := m, error(nil)
		if change.Region != nil {
			next, err = next.SetNodeRegion(name, *change.Region)
		}
		if err == nil && change.Weight != nil {
			next, err = next.SetNodeWeight(name, *change.Weight)
		}
		switch {
		case errors.Is(err, keyspace.ErrNotFound):
			return nil, notFound("See pgshoal node list.", "%v", err)
		case err != nil:
			return nil, conflict("", "%v", err)
		}
		return next, nil
	})
	if err != nil {
		return nil, err
	}
	return m, c.waitAcked(ctx, m.Epoch)
}

func (c *Controller) patchNode(ctx context.Context, r *http.Request) (any, error) {
	var change NodeChange
	if err := decodeBody(r, &change); err != nil {
		return nil, err
	}
	m, err := c.SetNode(ctx, r.PathValue("name"), change)
	if err != nil {
		return nil, err
	}
	n, err := m.Node(r.PathValue("name"))
	return map[string]any{"node": n, "epoch": m.Epoch}, err
}
