package catalog_test

import "testing"

func TestSpread(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	conn := connect(t, p, "", "")
	run(t, conn, "CREATE TABLE a (k bigint PRIMARY KEY); CREATE TABLE b (k text PRIMARY KEY)")
	if load(t, conn).Spread() {
		t.Error("spread, with local tables only")
	}
	run(t, conn, "SELECT pg_shoal.set_table('b', 'reference', NULL, NULL)")
	c := load(t, conn)
	if !c.Spread() {
		t.Error("not spread, with a reference table")
	}
	type key struct{}
	computed := 0
	for range 3 {
		if got := c.Derived(key{}, func() any { computed++; return "fact" }); got != "fact" {
			t.Errorf("%v", got)
		}
	}
	if computed != 1 {
		t.Errorf("computed %d times", computed)
	}
}
