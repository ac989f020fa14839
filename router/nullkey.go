package router

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// withoutKey finds a node for a statement that gives a row no key. When the column is declared NOT NULL
// the node that the other keys lead to refuses it, in PostgreSQL's own words; else the router does.
func (s *session) withoutKey(ctx context.Context, v *view, p *plan.Plan, values exec.Values, cause error) (string, error) {
	s.task.Detach()
	var null *exec.NullKey
	if !errors.As(cause, &null) {
		return "", cause
	}
	cat, err := s.catalog(ctx, v)
	if err != nil {
		return "", err
	}
	table, column, _ := strings.Cut(null.Column, ".")
	var t *catalog.Table
	for _, oid := range p.Tables {
		if found := cat.Table(oid); found != nil && found.Name == table {
			t = found
		}
	}
	// A trigger or a rule could give the row a key after all, which would then be on the wrong node.
	if i := columnOf(t, column); i >= 0 && t.Columns[i].NotNull && !t.HasTriggers && !t.HasRules {
		relaxed := *p
		relaxed.Pins = slices.DeleteFunc(slices.Clone(p.Pins), func(pin plan.Pin) bool {
			return pin.Insert || slices.ContainsFunc(pin.Keys, func(k plan.KeyColumn) bool { return k.Assigned })
		})
		return exec.Target(v.m, &relaxed, values, s)
	}
	e := nullKeyError(null)
	if t != nil {
		e.Schema = t.Schema
	}
	return "", e
}

func columnOf(t *catalog.Table, column string) int {
	if t == nil {
		return -1
	}
	return t.Column(column)
}

// nullKeyError says it as PostgreSQL does for a column that is declared NOT NULL.
func nullKeyError(n *exec.NullKey) *pgwire.Error {
	table, column, _ := strings.Cut(n.Column, ".")
	e := pgwire.Errorf("23502", "null value in column %q of relation %q violates not-null constraint", column, table).
		WithDetail("The column is the key of a distributed table.")
	e.Table, e.Column = table, column
	return e
}
