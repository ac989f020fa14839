package catalog

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"
)

//go:embed load.sql
var loadSQL string

// firstUserOID is the lowest OID of what is made after initdb (FirstNormalObjectId).
const firstUserOID = "16384"

// builtin is the part of a database that comes with the server. It is the same in all databases of
// a server, so a Loader keeps it.
type builtin struct {
	tables    map[uint32]*Table
	names     map[qualified]*Table
	functions map[qualified]*Function
	types     map[uint32]Type
}

// Loader reads databases and remembers what comes with the server, so that reading again after a
// change of the schema costs only what users made. It is safe for concurrent use.
type Loader struct {
	userQuery    string
	builtinQuery string

	mu       sync.Mutex
	builtins map[string]*builtin // by fingerprint of the server's own objects
}

// NewLoader returns a Loader that remembers nothing yet.
func NewLoader() *Loader {
	parts := loadParts()
	user := union(parts, ">= "+firstUserOID, "fingerprint", "schema", "role", "membership", "table", "column", "default", "sequence", "type",
		"function", "placed function", "unique", "foreign key", "trigger", "inheritance", "definition", "operator", "hidden", "setting")
	own := union(parts, "< "+firstUserOID, "table", "column", "type", "builtin function")
	return &Loader{
		// The server's search_path is asked outside of read(), which sets its own.
		userQuery:    readQuery(user) + serverPathQuery,
		builtinQuery: readQuery(own),
		builtins:     map[string]*builtin{},
	}
}

// serverPathQuery reads the search_path from before any role's or session's own setting; a role
// that has its own hides it, and then PostgreSQL's default is assumed.
const serverPathQuery = ` UNION ALL
SELECT 'D', CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_db_role_setting s, unnest(s.setconfig) v
        WHERE v LIKE 'search\_path=%' AND s.setrole = (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = session_user))
    OR source IN ('database', 'client') THEN boot_val ELSE reset_val END, NULL, NULL, NULL, NULL
FROM pg_catalog.pg_settings WHERE name = 'search_path'`

// loadParts cuts load.sql into its parts.
func loadParts() map[string]string {
	parts := map[string]string{}
	for _, p := range strings.Split(loadSQL, "\n-- part ")[1:] {
		name, sql, _ := strings.Cut(p, "\n")
		parts[name] = strings.TrimSpace(sql)
	}
	return parts
}

func union(parts map[string]string, oids string, names ...string) string {
	// The first part fixes the types: without it a column of names would be of type name.
	selected := []string{"SELECT NULL::text" + strings.Repeat(", NULL::text", loadColumns-1) + " WHERE false"}
	for _, n := range names {
		selected = append(selected, "("+strings.ReplaceAll(parts[n], "{range}", oids)+")")
	}
	return strings.Join(selected, "\nUNION ALL\n")
}

// readQuery has the query run where every name is printed qualified.
func readQuery(query string) string {
	return "SELECT * FROM pg_shoal.read($pg_shoal$" + query + "$pg_shoal$) AS (k text, a text, b text, c text, d text, e text)"
}

// Load reads a database once; whoever reads more often keeps a Loader.
func Load(ctx context.Context, q Querier, database string, version uint64) (*Catalog, error) {
	return NewLoader().Load(ctx, q, database, version)
}

// Load reads the database the Querier is connected to, in one statement (two when the server is new
// to the Loader) and without a trace in the session. Inside a transaction it sees what that
// transaction sees.
func (l *Loader) Load(ctx context.Context, q Querier, database string, version uint64) (*Catalog, error) {
	rows, err := query(ctx, q, l.userQuery)
	if err != nil {
		return nil, fmt.Errorf("load the catalog of database %s: %w", database, err)
	}
	mark, err := fingerprint(rows)
	if err != nil {
		return nil, fmt.Errorf("load the catalog of database %s: %w", database, err)
	}
	own, err := l.builtin(ctx, q, mark)
	if err != nil {
		return nil, fmt.Errorf("load the catalog of database %s: %w", database, err)
	}
	c, err := build(rows, own)
	if err != nil {
		return nil, fmt.Errorf("load the catalog of database %s: %w", database, err)
	}
	c.Database, c.Version = database, version
	return c, nil
}

// query tries again when an object vanished between the statement's snapshot and the printing of
// its definition, which the server reports as an internal error.
func query(ctx context.Context, q Querier, sql string) ([][][]byte, error) {
	var first error
	for range 3 {
		rows, err := q.Query(ctx, sql)
		if err == nil {
			return rows, nil
		}
		if first == nil {
			first = err // inside a transaction the next one only says that it is aborted
		}
		var state interface{ SQLState() string }
		if !errors.As(err, &state) || state.SQLState() != "XX000" {
			break
		}
	}
	return nil, first
}

// builtin returns what comes with the server, reading it when no server like it was seen.
func (l *Loader) builtin(ctx context.Context, q Querier, mark string) (*builtin, error) {
	l.mu.Lock()
	own := l.builtins[mark]
	l.mu.Unlock()
	if own != nil {
		return own, nil
	}
	rows, err := query(ctx, q, l.builtinQuery)
	if err != nil {
		return nil, err
	}
	own, err = buildBuiltin(rows)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.builtins[mark]; first != nil {
		return first, nil
	}
	l.builtins[mark] = own
	return own, nil
}

func fingerprint(rows [][][]byte) (string, error) {
	for _, r := range rows {
		if len(r) == loadColumns && string(r[0]) == "b" {
			return strings.Join([]string{string(r[1]), string(r[2]), string(r[3]), string(r[4])}, "|"), nil
		}
	}
	return "", errors.New("the server did not describe itself")
}
