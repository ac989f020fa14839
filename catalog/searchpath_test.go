package catalog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/pgshoal/pgshoal/catalog"
	"pgregory.net/rapid"
)

func TestParseSearchPath(t *testing.T) {
	for _, c := range []struct {
		setting string
		want    []string
	}{
		{`"$user", public`, []string{"alice", "public"}},
		{``, nil},
		{`""`, nil},
		{`  public ,a,  b  `, []string{"public", "a", "b"}},
		{`Public, "Public"`, []string{"public", "Public"}},
		{`"a,b", "q""q", c`, []string{"a,b", `q"q`, "c"}},
		{`$user`, []string{"alice"}},
		{`pg_temp, pg_catalog`, []string{"pg_temp", "pg_catalog"}},
		{`"open`, []string{"open"}},
	} {
		if got := catalog.ParseSearchPath(c.setting, "alice"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.setting, got, c.want)
		}
	}
}

// TestParseSearchPathOfServer checks that any list of schemas survives the way through a server.
func TestParseSearchPathOfServer(t *testing.T) {
	t.Parallel()
	ctx, conn := testContext(t), connect(t, startServer(t), "", "")
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.StringMatching(`[a-zA-Z0-9_$" ,.'\\é-]{1,20}`), 1, 5).Draw(t, "names")
		quoted := make([]string, len(names))
		for i, n := range names {
			quoted[i] = pgx.Identifier{n}.Sanitize()
		}
		var setting string
		if _, err := conn.Exec(ctx, "SET search_path = "+strings.Join(quoted, ", ")); err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(ctx, "SHOW search_path").Scan(&setting); err != nil {
			t.Fatal(err)
		}
		for i := range names {
			if names[i] == "$user" {
				names[i] = "alice"
			}
		}
		if got := catalog.ParseSearchPath(setting, "alice"); !slices.Equal(got, names) {
			t.Fatalf("%s: %q, want %q", setting, got, names)
		}
	})
}

func FuzzParseSearchPath(f *testing.F) {
	f.Add(`"$user", public`, "me")
	f.Add(`"a""`, "")
	f.Fuzz(func(t *testing.T, setting, user string) {
		if slices.Contains(catalog.ParseSearchPath(setting, user), "") {
			t.Errorf("an empty schema in %q", setting)
		}
	})
}

// TestUsablePath compares with what the server itself looks through.
func TestUsablePath(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	admin := connect(t, p, "", "")
	run(t, admin, `CREATE ROLE grp; CREATE ROLE inner_grp; CREATE ROLE a LOGIN IN ROLE grp; CREATE ROLE b LOGIN NOINHERIT IN ROLE grp; CREATE ROLE c LOGIN;
		CREATE ROLE reader LOGIN IN ROLE pg_read_all_data; CREATE ROLE super LOGIN SUPERUSER; CREATE ROLE dba LOGIN; GRANT inner_grp TO grp;
		CREATE SCHEMA open; GRANT USAGE ON SCHEMA open TO PUBLIC; CREATE SCHEMA closed; CREATE SCHEMA ours AUTHORIZATION inner_grp;
		CREATE SCHEMA lent; GRANT USAGE ON SCHEMA lent TO c; CREATE SCHEMA shut AUTHORIZATION c; REVOKE ALL ON SCHEMA shut FROM c;
		CREATE SCHEMA a; GRANT USAGE ON SCHEMA a TO a; REVOKE USAGE ON SCHEMA public FROM PUBLIC; ALTER DATABASE postgres OWNER TO dba`)
	path := []string{"missing", "a", "open", "closed", "ours", "lent", "shut", "public", "pg_catalog"}
	c := load(t, admin)
	for _, role := range []string{"a", "b", "c", "reader", "super", "dba", "pgshoal"} {
		conn := connect(t, p, role, "")
		run(t, conn, "SET search_path = "+strings.Join(path, ", "))
		want := one[[]string](t, conn, "SELECT current_schemas(false)::text[]")
		if got := c.UsablePath(path, role); !slices.Equal(got, want) {
			t.Errorf("%s: %q, PostgreSQL says %q", role, got, want)
		}
	}
	if got := c.UsablePath([]string{"pg_temp", "open", "ours"}, "nobody"); !slices.Equal(got, []string{"pg_temp", "open"}) {
		t.Errorf("unknown role: %q", got)
	}
	run(t, admin, "DROP SCHEMA public")
	if load(t, admin).HasSchema("public") {
		t.Error("public is still there")
	}
}
