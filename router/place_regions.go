package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// regionSpec is a region as create_distributed_table was given it.
type regionSpec struct {
	name   string
	values []string
}

// readRegions reads {"eu": ["de", "fr"], "us": ["us"]}, regions in order of their names.
func readRegions(text string) ([]regionSpec, error) {
	if text == "" {
		return nil, nil
	}
	malformed := func(why string) error {
		return pgwire.Errorf("22023", "regions are not valid: %s", why).
			WithHint(`Write regions => '{"eu": ["de", "fr"], "us": ["us"]}'.`)
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, malformed("they are not a JSON object")
	}
	var regions []regionSpec
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, malformed("they are not a JSON object")
		}
		if name == "" {
			return nil, malformed("a region has no name")
		}
		if slices.ContainsFunc(regions, func(r regionSpec) bool { return r.name == name }) {
			return nil, malformed(fmt.Sprintf("region %q is there twice", name))
		}
		var values []any
		if err := dec.Decode(&values); err != nil {
			return nil, malformed(fmt.Sprintf("the values of region %q are not an array", name))
		}
		r := regionSpec{name: name}
		for _, v := range values {
			switch v := v.(type) {
			case string:
				r.values = append(r.values, v)
			case json.Number:
				r.values = append(r.values, v.String())
			case bool:
				r.values = append(r.values, strconv.FormatBool(v))
			default:
				return nil, malformed(fmt.Sprintf("a value of region %q is neither a string nor a number nor a boolean", name))
			}
		}
		regions = append(regions, r)
	}
	if _, err := dec.Token(); err != nil {
		return nil, malformed("they are not a JSON object")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, malformed("something follows the JSON object")
	}
	slices.SortFunc(regions, func(a, b regionSpec) int { return strings.Compare(a.name, b.name) })
	return regions, nil
}

// listRegions turns the regions of a call into those of a list: their values as PostgreSQL reads them in the
// column's type, each in one region, and each region with nodes.
func (p *placement) listRegions(ctx context.Context, s *distributeSpec, t keyspace.Type) ([]keyspace.Region, error) {
	specs := slices.Clone(s.regions)
	if s.fallback != "" && !slices.ContainsFunc(specs, func(r regionSpec) bool { return r.name == s.fallback }) {
		specs = append(specs, regionSpec{name: s.fallback})
	}
	if err := checkRegionNodes(p.m, specs); err != nil {
		return nil, err
	}
	regions := make([]keyspace.Region, len(specs))
	owner := map[string]string{} // by the value's encoding
	for i, r := range specs {
		if len(r.values) == 0 && r.name != s.fallback {
			return nil, pgwire.Errorf("22023", "region %q has no values and is not the default region", r.name)
		}
		values, err := p.canonical(ctx, t, r.values)
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			encoded, err := keyspace.AppendOrdered(nil, t, keyspace.Value{Data: []byte(v), From: t})
			if err != nil {
				return nil, pgwire.Errorf("22023", "value %q of region %q cannot be a key: %v", v, r.name, err)
			}
			if other, ok := owner[string(encoded)]; ok {
				return nil, pgwire.Errorf("22023", "value %q is in region %q and again in region %q", v, other, r.name)
			}
			owner[string(encoded)] = r.name
		}
		regions[i] = keyspace.Region{Name: r.name, ID: uint16(i + 1), Values: values}
	}
	return regions, nil
}

// checkRegionNodes refuses a region that no active node has.
func checkRegionNodes(m *keyspace.Map, specs []regionSpec) error {
	var known []string
	for _, n := range m.NodesActive() {
		if n.Region != "" && !slices.Contains(known, n.Region) {
			known = append(known, n.Region)
		}
	}
	slices.Sort(known)
	for _, r := range specs {
		if slices.Contains(known, r.name) {
			continue
		}
		e := pgwire.Errorf("22023", "region %q has no active node", r.name)
		if len(known) == 0 {
			return e.WithHint("No node has a region. Give it one: pgshoal node add --region.")
		}
		return e.WithHint("The regions of active nodes are: %s.", strings.Join(known, ", "))
	}
	return nil
}

// canonical has PostgreSQL read values of a type, with the session's settings, and write them in the one form that
// does not depend on any.
func (p *placement) canonical(ctx context.Context, t keyspace.Type, values []string) ([]string, error) {
	if len(values) == 0 {
		return nil, nil
	}
	literals := make([]string, len(values))
	for i, v := range values {
		literals[i] = plan.QuoteLiteral(v)
	}
	rows, err := p.home.Query(ctx, "SELECT "+exec.CanonicalSQL(t.Canonical(), "v::"+t.SQL())+" FROM pg_catalog.unnest(ARRAY["+
		strings.Join(literals, ", ")+"]::pg_catalog.text[]) WITH ORDINALITY AS u(v, n) ORDER BY n")
	if err != nil {
		return nil, err
	}
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = string(r[0])
	}
	return out, nil
}
