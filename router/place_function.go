package router

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// routine is a function or procedure as pg_proc has it.
type routine struct {
	signature string // qualified, for regprocedure
	arguments []routineArgument
}

// routineArgument is an argument that a call gives.
type routineArgument struct {
	name     string
	typ      uint32
	variadic bool
}

// routineQuery lists the arguments that a call of a routine gives, a procedure's OUT arguments among them.
const routineQuery = `SELECT i.identity, a.name, a.type, a.mode = 'v'
FROM pg_catalog.pg_proc p
CROSS JOIN LATERAL pg_catalog.pg_identify_object('pg_catalog.pg_proc'::pg_catalog.regclass, p.oid, 0) i
LEFT JOIN LATERAL (
    SELECT coalesce(x.name, '') AS name, x.type, coalesce(x.mode, 'i') AS mode, x.n
    FROM unnest(coalesce(p.proallargtypes, p.proargtypes::pg_catalog.oid[]), p.proargnames, p.proargmodes) WITH ORDINALITY x(type, name, mode, n)
    WHERE x.type IS NOT NULL AND (coalesce(x.mode, 'i') IN ('i', 'b', 'v') OR p.prokind = 'p')) a ON true
WHERE p.oid = %s::pg_catalog.oid
ORDER BY a.n`

// placeFunction executes create_distributed_function and undistribute_function.
func (s *session) placeFunction(ctx context.Context, call *plan.Placing, values [][]byte) error {
	home, done, err := s.homeInTransaction(ctx)
	if err != nil {
		return err
	}
	defer done()
	args, err := placingArgs(ctx, call, values, home)
	if err != nil {
		return err
	}
	r, err := findRoutine(ctx, home, args["function_name"])
	if err != nil {
		return err
	}
	m, err := s.enterAny(ctx, []uint32{schemaTable})
	if err != nil {
		return err
	}
	sql := fmt.Sprintf("SELECT pg_shoal.unset_function(%s)", plan.QuoteLiteral(r.signature))
	if call.Function == "create_distributed_function" {
		if args["distribution_arg_name"] == "" {
			return nil // functions are on all nodes anyway
		}
		if sql, err = s.setFunction(ctx, home, m, r, args); err != nil {
			return err
		}
	}
	s.schemaChanged = true
	p := &placement{s: s, m: m, home: home}
	err = p.everywhere(ctx, sql)
	s.ownCatalog = nil
	return err
}

// findRoutine takes a name that is enough, or a signature.
func findRoutine(ctx context.Context, home *pool.Conn, name string) (*routine, error) {
	cast := "pg_catalog.regproc"
	if strings.Contains(name, "(") {
		cast = "pg_catalog.regprocedure"
	}
	rows, err := home.Query(ctx, fmt.Sprintf(routineQuery, "("+plan.QuoteLiteral(name)+"::"+cast+")"))
	if err != nil {
		return nil, err
	}
	r := &routine{signature: string(rows[0][0])}
	for _, row := range rows {
		if row[2] != nil {
			r.arguments = append(r.arguments, routineArgument{string(row[1]), atoi(row[2]), string(row[3]) == "t"})
		}
	}
	return r, nil
}

// setFunction is the statement that stores where a function runs.
func (s *session) setFunction(ctx context.Context, home *pool.Conn, m *keyspace.Map, r *routine, args map[string]string) (string, error) {
	at := r.argument(args["distribution_arg_name"])
	if at < 0 {
		return "", pgwire.Errorf("22023", "function %s has no argument %s", r.signature, args["distribution_arg_name"]).
			WithHint("Give the argument's name, or $1, $2 and so on.")
	}
	cat, err := s.catalog(ctx, s.router.view.Load())
	if err != nil {
		return "", err
	}
	arg := r.arguments[at]
	t, ok := keyspace.TypeByOID(cat.BaseType(arg.typ))
	if !ok || arg.variadic {
		return "", pgwire.Errorf("42804", "argument %s of function %s cannot be a key", args["distribution_arg_name"], r.signature).
			WithHint("It must be of the type of a key, and not variadic.")
	}
	d, err := functionDistribution(ctx, home, m, cat, t, args["colocate_with"])
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("SELECT pg_shoal.set_function(%s, %d, %d)", plan.QuoteLiteral(r.signature), d.ID, at+1), nil
}

// argument finds $n or a name; -1: there is none.
func (r *routine) argument(name string) int {
	if digits, ok := strings.CutPrefix(name, "$"); ok {
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 || n > len(r.arguments) {
			return -1
		}
		return n - 1
	}
	return slices.IndexFunc(r.arguments, func(a routineArgument) bool { return a.name == name })
}

// functionDistribution is the distribution of the table that a function is co-located with; by default the only one
// whose key has the argument's type.
func functionDistribution(ctx context.Context, home *pool.Conn, m *keyspace.Map, cat *catalog.Catalog, t keyspace.Type, with string) (*keyspace.Distribution, error) {
	if with != "" && with != "default" {
		oid, err := tableOID(ctx, home, with)
		if err != nil {
			return nil, err
		}
		table := cat.Table(oid)
		if table == nil || table.Placement != catalog.Distributed {
			return nil, pgwire.Errorf("55000", "table %s is not distributed", with).WithHint("Distribute it first.")
		}
		d := m.Distribution(table.Distribution)
		if d == nil || len(table.Key) == 0 || !plan.KeyedType(d, t) {
			return nil, pgwire.Errorf("42804", "cannot co-locate with %s: its key is not one column of the argument's type", with)
		}
		return d, nil
	}
	var found []*keyspace.Distribution
	for _, table := range cat.Tables() {
		d := m.Distribution(table.Distribution)
		if table.Placement == catalog.Distributed && len(table.Key) > 0 && table.Schema != "pg_shoal" && d != nil && plan.KeyedType(d, t) && !slices.Contains(found, d) {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		return nil, pgwire.Errorf("22023", "%d distributions have a key of the argument's type", len(found)).
			WithHint("Name a table that the function uses: colocate_with => 'table'.")
	}
	return found[0], nil
}
