package control

import (
	"context"
	"net/http"

	"github.com/pgshoal/pgshoal/keyspace"
)

// RegionRequest names values of a table's list that shall live in a region.
type RegionRequest struct {
	Table    string   `json:"table"`
	Database string   `json:"database,omitempty"`
	Region   string   `json:"region"`
	Values   []string `json:"values"`
	Dry      bool     `json:"dry_run,omitempty"`
}

// AddToRegion lets values that are in no list yet live in a region.
func (c *Controller) AddToRegion(ctx context.Context, req RegionRequest) (*ShardsChanged, error) {
	m, d, err := c.distributed(ctx, req.Database, req.Table)
	if err != nil {
		return nil, err
	}
	if d.Dimensions[0].Method != keyspace.List {
		return nil, conflict("SHOW shoal.regions lists those that have.", "table %q has no regions: it is spread by %s", req.Table, d.Strategy())
	}
	values := make([]keyspace.Value, len(req.Values))
	types := make([]keyspace.Type, len(req.Values))
	for i, v := range req.Values {
		types[i] = d.Types[d.Dimensions[0].Columns[0]]
		values[i] = keyspace.Value{Data: []byte(v), From: types[i]}
	}
	if err := c.canonical(ctx, m, d.Database, types, values); err != nil {
		return nil, badRequest("", "a value is not of the column's type: %v", err)
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v.Data)
	}
	return c.editMap(ctx, req.Dry, func(m *keyspace.Map) (*keyspace.Map, error) { return m.AddToRegion(d.ID, req.Region, texts) })
}

func (c *Controller) postRegion(ctx context.Context, r *http.Request) (any, error) {
	var req RegionRequest
	if err := decodeBody(r, &req); err != nil {
		return nil, err
	}
	return c.AddToRegion(ctx, req)
}
