package catalog

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"
)

//go:embed diff.sql
var diffSQL string

const (
	databasePart  = "-- part database\n"
	placementKind = "placement" // rows of pg_shoal.tables, in diff.sql
)

// Source is a node whose schema is compared. Its role must be a superuser, because the roles'
// passwords are compared too.
type Source struct {
	Node   string
	Config *pgx.ConnConfig
}

// Change says how an object differs from the home node's.
type Change string

// The changes.
const (
	Missing Change = "missing" // the home node has it, the node has not
	Extra   Change = "extra"   // the node has it, the home node has not
	Differs Change = "differs"
)

// Difference is one object that is not the same on a node as on the home node.
type Difference struct {
	Node     string `json:"node"`
	Database string `json:"database,omitempty"` // empty: of the whole server, as roles are
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Change   Change `json:"change"`
	Home     string `json:"home,omitempty"` // the object on the home node, in words
	Other    string `json:"other,omitempty"`
}

// String is the difference in one line, without the texts.
func (d Difference) String() string {
	where := "node " + d.Node
	if d.Database != "" {
		where += ", database " + d.Database
	}
	return fmt.Sprintf("%s: %s %s %s", where, d.Kind, d.Name, d.Change)
}

// Diff compares the schema of nodes with the home node's: roles, databases, and everything in them
// that users can make. The differences are sorted. No difference is an empty list.
func Diff(ctx context.Context, home Source, others ...Source) ([]Difference, error) {
	snapshots := make([]snapshot, 1+len(others))
	group, ctx := errgroup.WithContext(ctx)
	for i, s := range append([]Source{home}, others...) {
		group.Go(func() (err error) {
			if snapshots[i], err = takeSnapshot(ctx, s.Config); err != nil {
				return fmt.Errorf("read the schema of node %s: %w", s.Node, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var found []Difference
	for i, s := range others {
		found = append(found, compareSnapshots(s.Node, snapshots[0], snapshots[i+1])...)
	}
	slices.SortFunc(found, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Database, b.Database), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
	return found, nil
}

// snapshot has the text of every object of a server.
type snapshot map[object]string

type object struct{ database, kind, name string }

func databaseObject(name string) object { return object{kind: "database", name: name} }

func takeSnapshot(ctx context.Context, config *pgx.ConnConfig) (snapshot, error) {
	server, database, _ := strings.Cut(diffSQL, databasePart)
	s := snapshot{}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := s.read(ctx, conn, "", server); err != nil {
		return nil, err
	}
	databases, err := connectable(ctx, conn)
	if err != nil {
		return nil, err
	}
	for _, name := range databases {
		if err := s.readDatabase(ctx, config, name, database); err != nil {
			return nil, fmt.Errorf("database %s: %w", name, err)
		}
	}
	return s, nil
}

func (s snapshot) readDatabase(ctx context.Context, config *pgx.ConnConfig, name, sql string) error {
	conn, err := connectTo(ctx, config, name)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return s.read(ctx, conn, name, sql)
}

// diffSettings make names print qualified and texts depend on nothing but the schema. Definitions
// are printed under locks: giving up before the server looks for deadlocks makes sure that a
// comparison is never the reason why a change of the schema fails.
const diffSettings = `SET search_path = pg_catalog; SET timezone = 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'postgres';
	SET jit = off; SET extra_float_digits = 1; SET bytea_output = 'hex'; SET lc_monetary = 'C'; SET lock_timeout = '900ms'`

// read runs a part of diff.sql, some times if a table is locked.
func (s snapshot) read(ctx context.Context, conn *pgx.Conn, database, sql string) error {
	if _, err := conn.Exec(ctx, diffSettings, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	const tries = 10
	for try := 1; ; try++ {
		texts, err := readTexts(ctx, conn, database, sql)
		var failed *pgconn.PgError
		if err != nil && try < tries && errors.As(err, &failed) && failed.Code == "55P03" {
			continue
		}
		maps.Copy(s, texts)
		return err
	}
}

func readTexts(ctx context.Context, conn *pgx.Conn, database, sql string) (snapshot, error) {
	rows, err := conn.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, err
	}
	texts, o, text := snapshot{}, object{database: database}, ""
	_, err = pgx.ForEachRow(rows, []any{&o.kind, &o.name, &text}, func() error {
		texts[o] = text
		return nil
	})
	return texts, err
}

func compareSnapshots(node string, home, other snapshot) []Difference {
	var found []Difference
	add := func(o object, change Change) {
		_, inHome := home[databaseObject(o.database)]
		_, inOther := other[databaseObject(o.database)]
		if o.database != "" && (!inHome || !inOther) {
			return // that the database is missing or extra says it all
		}
		found = append(found, Difference{
			Node: node, Database: o.database, Kind: o.kind, Name: o.name,
			Change: change, Home: home[o], Other: other[o],
		})
	}
	for o, text := range home {
		if theirs, ok := other[o]; !ok {
			add(o, Missing)
		} else if theirs != text {
			add(o, Differs)
		}
	}
	for o := range other {
		if _, ok := home[o]; !ok {
			add(o, Extra)
		}
	}
	return found
}

// WriteDifferences prints differences for people: one line each, and under it the lines in which
// the two texts differ.
func WriteDifferences(w io.Writer, list []Difference) error {
	for _, d := range list {
		if _, err := fmt.Fprintln(w, d); err != nil {
			return err
		}
		if d.Change != Differs {
			continue
		}
		home, other := strings.Split(d.Home, "\n"), strings.Split(d.Other, "\n")
		for _, side := range []struct {
			sign      string
			lines, in []string
		}{{"home", home, other}, {d.Node, other, home}} {
			for _, line := range side.lines {
				if slices.Contains(side.in, line) {
					continue
				}
				if _, err := fmt.Fprintf(w, "    %s: %s\n", side.sign, line); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
