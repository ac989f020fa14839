package sqldiff

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Contents tell tables apart by their rows: per table the number of rows and the sum of their hashes.
type Contents map[string]mark

type mark struct{ rows, hashes string }

// node is one server behind a target, asked directly.
type node struct {
	name     string
	direct   *session
	baseline Contents
	// saved is the data of each table, in COPY's text format.
	saved map[string]string
	// misplaced is, by table, the condition for rows that belong to another node.
	misplaced map[string]string
}

// shopTables are those that cases write to.
func shopTables() []string {
	return slices.DeleteFunc(tableNames(), func(name string) bool { return strings.Contains(name, ".") })
}

// contents reads what the node has.
func (n *node) contents(ctx context.Context, tables []string) (Contents, error) {
	var parts []string
	for _, t := range tables {
		wrong := n.misplaced[t]
		if wrong == "" {
			wrong = "false"
		}
		parts = append(parts, fmt.Sprintf("SELECT '%s', count(*), coalesce(sum(hashtextextended(x::text, 0)::numeric), 0), count(*) FILTER (WHERE %s) FROM %s x", t, wrong, t))
	}
	rows, err := n.direct.rows(ctx, strings.Join(parts, " UNION ALL "))
	if err != nil {
		return nil, fmt.Errorf("read the tables of %s: %w", n.name, err)
	}
	all := Contents{}
	for _, r := range rows {
		if string(r[3]) != "0" {
			return nil, misplacedError{fmt.Sprintf("%s has %s rows of %s that belong to another node", n.name, r[3], r[0])}
		}
		all[string(r[0])] = mark{string(r[1]), string(r[2])}
	}
	return all, nil
}

// misplacedError is a difference, not a failure of the run.
type misplacedError struct{ message string }

func (e misplacedError) Error() string { return e.message }

// save remembers the data for restore.
func (n *node) save(ctx context.Context) error {
	var err error
	if n.baseline, err = n.contents(ctx, tableNames()); err != nil {
		return err
	}
	n.saved = map[string]string{}
	for _, t := range tableNames() {
		var out strings.Builder
		if _, err := n.direct.conn.CopyTo(ctx, &out, "COPY "+t+" TO STDOUT"); err != nil {
			return err
		}
		n.saved[t] = out.String()
	}
	return nil
}

// restore brings changed tables back, without foreign keys and triggers looking on.
func (n *node) restore(ctx context.Context, now Contents) error {
	for _, t := range slices.Sorted(maps.Keys(now)) {
		if now[t] == n.baseline[t] {
			continue
		}
		if err := n.direct.must(ctx, "SET session_replication_role = replica; DELETE FROM "+t); err != nil {
			return fmt.Errorf("restore %s on %s: %w", t, n.name, err)
		}
		if _, err := n.direct.conn.CopyFrom(ctx, strings.NewReader(n.saved[t]), "COPY "+t+" FROM STDIN"); err != nil {
			return fmt.Errorf("restore %s on %s: %w", t, n.name, err)
		}
	}
	return nil
}

// resetSequences lets every case begin with the same numbers; only the home node counts as one server does.
func resetSequences(ctx context.Context, home *pgconn.PgConn) error {
	return home.Exec(ctx, "SELECT setval('audit_id_seq', 1000, false), setval('tickets_id_seq', 1000, false)").Close()
}

// add sums what the nodes have of a distributed table.
func (m mark) add(other mark) mark {
	return mark{sum(m.rows, other.rows), sum(m.hashes, other.hashes)}
}

func sum(a, b string) string {
	x, ok := new(big.Int).SetString(a, 10)
	y, also := new(big.Int).SetString(b, 10)
	if !ok || !also {
		return a + " + " + b
	}
	return x.Add(x, y).String()
}

var nothing = mark{"0", "0"}

// together is what the nodes have as one: distributed rows are added, reference rows are the same
// everywhere, local rows are at home only. A violation is returned in words.
func together(placed map[string]Placement, nodes []Contents) (all Contents, wrong string) {
	all = Contents{}
	for _, t := range slices.Sorted(maps.Keys(nodes[0])) {
		p, isPlaced := placed[t]
		all[t] = nodes[0][t]
		for i, other := range nodes[1:] {
			switch {
			case !isPlaced && other[t] != nothing:
				return nil, fmt.Sprintf("local table %s has %s rows on node %d", t, other[t].rows, i+2)
			case isPlaced && p.Reference && other[t] != all[t]:
				return nil, fmt.Sprintf("reference table %s has %s rows at home and %s on node %d, or others", t, all[t].rows, other[t].rows, i+2)
			case isPlaced && !p.Reference:
				all[t] = all[t].add(other[t])
			}
		}
	}
	return all, ""
}
