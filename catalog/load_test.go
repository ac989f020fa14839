package catalog_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/pgshoal/pgshoal/catalog"
	"golang.org/x/sync/errgroup"
)

func load(tb testing.TB, conn *pgx.Conn) *catalog.Catalog {
	tb.Helper()
	c, err := catalog.Load(testContext(tb), querier{conn.PgConn()}, conn.Config().Database, 7)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// richSchema has one of everything the catalog tells about.
const richSchema = `
CREATE ROLE app;
CREATE SCHEMA "Odd ""one"" space";
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN positive AS bigint CHECK (VALUE > 0);
CREATE DOMAIN stamp AS timestamptz DEFAULT clock_timestamp();
CREATE DOMAIN uid AS uuid DEFAULT '00000000-0000-0000-0000-000000000000';
CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE FUNCTION next_code() RETURNS text LANGUAGE sql VOLATILE AS 'SELECT ''x''';
CREATE FUNCTION twice(a int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT a * 2';
CREATE FUNCTION twice(a text, b text DEFAULT 'y') RETURNS text LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN a || b; END';
CREATE FUNCTION std() RETURNS int LANGUAGE sql STABLE BEGIN ATOMIC SELECT 42; END;
CREATE TABLE customers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, gone int, name varchar(20) NOT NULL COLLATE nocase,
    mood mood DEFAULT 'ok', made timestamptz DEFAULT now(), code text DEFAULT next_code(), stamp stamp, uid uid,
    small smallserial, big bigserial, double numeric(10,2) GENERATED ALWAYS AS (small * 2) STORED,
    UNIQUE (name, mood), EXCLUDE USING btree (code WITH =));
ALTER TABLE customers DROP COLUMN gone, OWNER TO app, ENABLE ROW LEVEL SECURITY;
CREATE UNIQUE INDEX customers_lower ON customers (lower(name), id) INCLUDE (big) WHERE big > 0;
CREATE TABLE orders (customer bigint NOT NULL REFERENCES customers ON DELETE CASCADE, n positive, p pair, tags text[],
    PRIMARY KEY (customer, n)) PARTITION BY RANGE (n);
CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (1) TO (10);
CREATE TABLE "Odd ""one"" space"."Tab.le" ("Key" int PRIMARY KEY, "a b" text DEFAULT 'q''s');
CREATE TABLE parent (a int); CREATE TABLE child (b int) INHERITS (parent);
CREATE UNLOGGED TABLE scratch (a int);
CREATE SEQUENCE counter; CREATE SEQUENCE bounded MAXVALUE 100;
CREATE TABLE counted (a bigint DEFAULT nextval('bounded'), b bigint DEFAULT nextval('counter') + 1);
CREATE VIEW v1 WITH (security_barrier) AS SELECT id, name FROM customers;
CREATE VIEW v2 AS SELECT id FROM v1;
CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n FROM v2;
CREATE TABLE logged (a int); CREATE RULE quiet AS ON DELETE TO logged DO INSTEAD NOTHING;
CREATE FUNCTION trig() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER tg BEFORE INSERT ON logged FOR EACH ROW EXECUTE FUNCTION trig();
CREATE FUNCTION eq_pair(pair, pair) RETURNS bool LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR = (LEFTARG = pair, RIGHTARG = pair, FUNCTION = eq_pair);
CREATE TABLE countries (code text PRIMARY KEY);
SELECT pg_shoal.set_table('customers', 'distributed', 3, '{id}');
SELECT pg_shoal.set_table('orders', 'distributed', 3, '{customer}');
SELECT pg_shoal.set_table('countries', 'reference', NULL, NULL);
`

const temporaries = `CREATE TEMP TABLE passing (a int); CREATE TEMP VIEW passing_view AS SELECT 1; CREATE TEMP SEQUENCE passing_seq;`

func TestLoad(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	conn := connect(t, p, "", "")
	run(t, conn, richSchema+temporaries)
	c := load(t, conn)
	if c.Database != "postgres" || c.Version != 7 {
		t.Errorf("database %q, version %d", c.Database, c.Version)
	}
	table := func(name string) *catalog.Table {
		t.Helper()
		tab := c.Lookup([]string{"public"}, "", name)
		if tab == nil {
			t.Fatalf("table %s is not there", name)
		}
		return tab
	}
	t.Run("columns", func(t *testing.T) { checkColumns(t, table("customers"), table("counted")) })
	t.Run("constraints", func(t *testing.T) { checkConstraints(t, table("customers"), table("orders")) })
	t.Run("placement", func(t *testing.T) { checkPlacement(t, c, table) })
	t.Run("functions", func(t *testing.T) { checkFunctions(t, c) })
	t.Run("kinds", func(t *testing.T) { checkKinds(t, c, table) })
	t.Run("flags", func(t *testing.T) { checkFlags(t, c, table) })
	t.Run("types", func(t *testing.T) { checkTypes(t, c, table("orders")) })
}

func checkKinds(t *testing.T, c *catalog.Catalog, table func(string) *catalog.Table) {
	for name, kind := range map[string]byte{
		"customers": 'r', "orders": 'p', "orders_1": 'r', "v1": 'v', "mv": 'm', "counter": 'S', "pg_class": 'r', "pg_stats": 'v',
	} {
		if got := table(name).Kind; got != kind {
			t.Errorf("%s: kind %c, want %c", name, got, kind)
		}
	}
	for _, name := range []string{"passing", "passing_view", "passing_seq", "customers_pkey"} {
		if c.Lookup([]string{"public"}, "", name) != nil || c.Lookup(nil, "pg_temp", name) != nil {
			t.Errorf("%s is there", name)
		}
	}
	for _, tab := range c.Tables() {
		if tab.Persistence == 't' || tab.Schema == "" {
			t.Errorf("%+v", tab)
		}
	}
}

func checkFlags(t *testing.T, c *catalog.Catalog, table func(string) *catalog.Table) {
	l, cu, v := table("logged"), table("customers"), table("v1")
	if !l.HasRules || !l.HasTriggers || len(l.Triggers) != 1 || c.Function(l.Triggers[0].Function).Name != "trig" {
		t.Errorf("logged: %+v", l)
	}
	if cu.HasRules || cu.HasTriggers || !cu.RowSecurity || cu.Owner != "app" || table("scratch").Persistence != 'u' {
		t.Errorf("customers: %+v", cu)
	}
	if v.HasRules || !slices.Equal(v.Options, []string{"security_barrier=true"}) {
		t.Errorf("v1: %+v", v)
	}
	if want := " SELECT v1.id\n   FROM public.v1;"; table("v2").ViewSQL != want {
		t.Errorf("v2: %q, want %q", table("v2").ViewSQL, want)
	}
	parent, child := table("parent"), table("child")
	if child.Parent != parent.OID || child.IsPartition || !slices.Equal(parent.Children, []uint32{child.OID}) {
		t.Errorf("inheritance: %+v %+v", parent, child)
	}
	odd := c.Lookup(nil, `Odd "one" space`, "Tab.le")
	if odd == nil || odd.Columns[1].Default != "'q''s'::text" || odd.Columns[0].Name != "Key" {
		t.Errorf("odd names: %+v", odd)
	}
}

func checkTypes(t *testing.T, c *catalog.Catalog, orders *catalog.Table) {
	n, pair := orders.Columns[1], orders.Columns[2]
	if typ, ok := c.Type(n.TypeOID); !ok || typ.Name != "positive" || typ.Kind != 'd' || c.BaseType(n.TypeOID) != 20 {
		t.Errorf("domain: %+v", typ)
	}
	if typ, ok := c.Type(pair.TypeOID); !ok || typ.Kind != 'c' || typ.Schema != "public" {
		t.Errorf("composite: %+v", typ)
	}
	if typ, ok := c.Type(25); !ok || typ.Name != "text" || typ.Schema != "pg_catalog" {
		t.Errorf("text: %+v", typ)
	}
	ops := c.Operators("=")
	if len(ops) != 1 || ops[0].Left != pair.TypeOID || c.Function(ops[0].Function).Name != "eq_pair" {
		t.Errorf("operators: %+v", ops)
	}
}

func checkColumns(t *testing.T, tables ...*catalog.Table) {
	var got strings.Builder
	for _, tab := range tables {
		for _, c := range tab.Columns {
			fmt.Fprintf(&got, "%d %s %s default=%s", c.Num, c.Name, c.TypeName, c.Default)
			for _, flag := range []struct {
				name string
				set  bool
			}{
				{"notnull", c.NotNull},
				{"volatile", c.DefaultVolatile},
				{"identity", c.Identity == 'a'},
				{"generated", c.Generated == 's'},
				{"nondeterministic", !c.Deterministic},
				{"sequence:" + c.SequenceType, c.SequenceOID != 0},
				{"placed", c.SequencePlaced},
			} {
				if flag.set {
					got.WriteString(" " + flag.name)
				}
			}
			got.WriteByte('\n')
		}
	}
	want := `1 id bigint default= notnull volatile identity sequence:bigint placed
3 name character varying(20) default= notnull nondeterministic
4 mood public.mood default='ok'::public.mood
5 made timestamp with time zone default=now()
6 code text default=public.next_code() volatile
7 stamp public.stamp default=clock_timestamp() volatile
8 uid public.uid default='00000000-0000-0000-0000-000000000000'::uuid
9 small smallint default=nextval('public.customers_small_seq'::regclass) notnull volatile sequence:smallint
10 big bigint default=nextval('public.customers_big_seq'::regclass) notnull volatile sequence:bigint placed
11 double numeric(10,2) default=(small * 2) generated
1 a bigint default=nextval('public.bounded'::regclass) volatile sequence:bigint
2 b bigint default=(nextval('public.counter'::regclass) + 1) volatile sequence:bigint placed
`
	if got.String() != want {
		t.Errorf("columns:\n%swant:\n%s", got.String(), want)
	}
}

func checkConstraints(t *testing.T, customers, orders *catalog.Table) {
	byName := func(a, b catalog.Unique) int { return strings.Compare(a.Name, b.Name) }
	uniques := slices.SortedFunc(slices.Values(customers.Uniques), byName)
	want := []catalog.Unique{
		{Name: "customers_code_excl", Columns: []string{"code"}, Constraint: true, Exclusion: true},
		{Name: "customers_lower", Columns: []string{"id"}, Expressions: true, Partial: true},
		{Name: "customers_name_mood_key", Columns: []string{"name", "mood"}, Constraint: true},
		{Name: "customers_pkey", Columns: []string{"id"}, Primary: true, Constraint: true},
	}
	if !reflect.DeepEqual(uniques, want) {
		t.Errorf("uniques: %+v\nwant %+v", uniques, want)
	}
	fk := []catalog.ForeignKey{{
		Name: "orders_customer_fkey", Table: orders.OID, Columns: []string{"customer"},
		RefTable: customers.OID, RefColumns: []string{"id"}, OnDelete: 'c', OnUpdate: 'a',
	}}
	if !reflect.DeepEqual(orders.ForeignKeys, fk) || !reflect.DeepEqual(customers.ReferencedBy, fk) {
		t.Errorf("foreign keys: %+v, %+v\nwant %+v", orders.ForeignKeys, customers.ReferencedBy, fk)
	}
}

func checkPlacement(t *testing.T, c *catalog.Catalog, table func(string) *catalog.Table) {
	for name, want := range map[string]string{
		"customers": "distributed 3 [id]", "orders": "distributed 3 [customer]", "orders_1": "distributed 3 [customer]",
		"countries": "reference 0 []", "logged": "local 0 []", "pg_class": "local 0 []",
	} {
		tab := table(name)
		if got := fmt.Sprint(tab.Placement, " ", tab.Distribution, " ", tab.KeyColumns()); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if part := table("orders_1"); !part.IsPartition || c.Table(part.Parent) != table("orders") {
		t.Errorf("partition: %+v", part)
	}
}

func checkFunctions(t *testing.T, c *catalog.Catalog) {
	path := []string{"public"}
	twice := c.Functions(path, "", "twice")
	if len(twice) != 2 || !c.Volatile(path, "", "twice") || c.Volatile(path, "", "std") || !c.Volatile(path, "", "unheard_of") {
		t.Errorf("twice: %+v", twice)
	}
	for _, f := range twice {
		if len(f.Args) == 2 && (f.Defaults != 1 || f.Source != "BEGIN RETURN a || b; END" || f.Language != "plpgsql") {
			t.Errorf("twice(text, text): %+v", f)
		}
	}
	if std := c.Functions(path, "", "std"); len(std) != 1 || !strings.Contains(std[0].Source, "42") {
		t.Errorf("std: %+v", std)
	}
	for name, want := range map[string]bool{"now": false, "lower": false, "random": true, "nextval": true, "sum": false} {
		if got := c.Volatile(path, "", name); got != want {
			t.Errorf("%s: volatile %v, want %v", name, got, want)
		}
		if f := c.Functions(path, "", name); len(f) != 1 || !f[0].Builtin || f[0].Schema != "pg_catalog" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestLoadInTransaction(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	conn, other := connect(t, p, "", ""), connect(t, p, "pgshoal", "")
	run(t, conn, `BEGIN; SET LOCAL search_path = nowhere; CREATE TABLE public.fresh (a int PRIMARY KEY);
		SELECT pg_shoal.set_table('public.fresh', 'distributed', 1, '{a}')`)
	if c := load(t, conn); c.Lookup([]string{"public"}, "", "fresh") == nil {
		t.Error("the transaction does not see its own table")
	}
	if c := load(t, other); c.Lookup([]string{"public"}, "", "fresh") != nil {
		t.Error("others see a table that is not committed")
	}
	var setting string
	if err := conn.QueryRow(testContext(t), "SHOW search_path").Scan(&setting); err != nil || setting != "nowhere" {
		t.Errorf("search_path %q, %v", setting, err)
	}
	if status := conn.PgConn().TxStatus(); status != 'T' {
		t.Errorf("transaction status %c", status)
	}
}

func TestLoadSearchPaths(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	conn := connect(t, p, "", "")
	run(t, conn, `CREATE ROLE a; CREATE ROLE b; CREATE ROLE c; ALTER ROLE a SET search_path = pa; ALTER ROLE b SET search_path = pb;
		ALTER ROLE b IN DATABASE postgres SET search_path = pbd, "Odd"; ALTER ROLE a IN DATABASE template1 SET search_path = other`)
	check := func(want map[string]string) {
		t.Helper()
		c := load(t, connect(t, p, "pgshoal", ""))
		for role, path := range want {
			if got := c.SearchPath(role); got != path {
				t.Errorf("%s: %q, want %q", role, got, path)
			}
		}
	}
	check(map[string]string{"a": "pa", "b": `pbd, "Odd"`, "c": `"$user", public`})
	run(t, conn, `ALTER ROLE ALL SET search_path = every`)
	check(map[string]string{"a": "pa", "c": `every`})
	run(t, conn, `ALTER DATABASE postgres SET search_path = db`)
	check(map[string]string{"a": "pa", "c": `db`})
}

// TestLoaderRemembers checks that what comes with the server is read once.
func TestLoaderRemembers(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	loader := catalog.NewLoader()
	counts := []int{2, 1, 1}
	for i, database := range []string{"postgres", "postgres", "template1"} {
		q := &countingQuerier{Querier: querier{connect(t, p, "pgshoal", database).PgConn()}}
		c, err := loader.Load(testContext(t), q, database, 1)
		if err != nil {
			t.Fatal(err)
		}
		if q.n != counts[i] {
			t.Errorf("load %d took %d statements, want %d", i, q.n, counts[i])
		}
		tab := c.Lookup(nil, "", "pg_class")
		if tab == nil || tab.Column("relname") < 0 || !c.HasSchema("information_schema") || !c.HasSchema("public") {
			t.Errorf("load %d: %+v", i, tab)
		}
	}
}

// TestLoadDuringDDL checks that a load never fails because something is dropped meanwhile.
func TestLoadDuringDDL(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	ddl, ctx := connect(t, p, "", ""), testContext(t)
	run(t, ddl, "CREATE TABLE base (a int)")
	loader := catalog.NewLoader()
	var group errgroup.Group
	for range 2 {
		conn := connect(t, p, "pgshoal", "")
		group.Go(func() error {
			for range 20 {
				c, err := loader.Load(ctx, querier{conn.PgConn()}, "postgres", 1)
				if err != nil {
					return err
				}
				// One snapshot: the table and its columns come together or not at all.
				if tab := c.Lookup([]string{"public"}, "", "churn"); tab != nil && len(tab.Columns) != 2 {
					return fmt.Errorf("half a table: %+v", tab)
				}
			}
			return nil
		})
	}
	for range 60 {
		run(t, ddl, `CREATE TABLE churn (a int DEFAULT 1, b int); CREATE VIEW over AS SELECT a FROM churn`)
		run(t, ddl, `DROP TABLE churn CASCADE`)
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// TestLoadBehindLocks checks that a load neither waits for a transaction that changes tables, nor
// keeps locks that would make one wait.
func TestLoadBehindLocks(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	ddl, conn := connect(t, p, "", ""), connect(t, p, "pgshoal", "")
	run(t, ddl, `CREATE TABLE a (x int, y int GENERATED ALWAYS AS (x + 1) STORED); CREATE TABLE b (x int); CREATE VIEW va AS SELECT x FROM a;
		CREATE VIEW vb AS SELECT x FROM b; CREATE FUNCTION fa() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM a; END`)
	path := []string{"public"}
	run(t, conn, "BEGIN")
	c := load(t, conn)
	if c.Lookup(path, "", "va").Unread || c.Functions(path, "", "fa")[0].Unread || c.Lookup(path, "", "a").Columns[1].Default != "(x + 1)" {
		t.Error("unread without a reason")
	}
	run(t, ddl, "SET lock_timeout = '5s'; BEGIN; ALTER TABLE a RENAME x TO z; LOCK TABLE va")
	c = load(t, conn)
	va, vb, fa := c.Lookup(path, "", "va"), c.Lookup(path, "", "vb"), c.Functions(path, "", "fa")[0]
	if !va.Unread || va.ViewSQL != "" || vb.Unread || vb.ViewSQL == "" || !fa.Unread || c.Lookup(path, "", "a").Columns[0].Name != "x" {
		t.Errorf("behind a lock: %+v\n%+v\n%+v", va, vb, fa)
	}
	run(t, ddl, "COMMIT")
	if va := load(t, conn).Lookup(path, "", "va"); va.Unread || !strings.Contains(va.ViewSQL, "a.z AS x") {
		t.Errorf("after the lock: %+v", va)
	}
}

type countingQuerier struct {
	catalog.Querier
	n int
}

func (q *countingQuerier) Query(ctx context.Context, sql string) ([][][]byte, error) {
	q.n++
	return q.Querier.Query(ctx, sql)
}
