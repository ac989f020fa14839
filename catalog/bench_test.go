package catalog_test

import (
	"fmt"
	"testing"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/shardtest"
)

func BenchmarkLoad(b *testing.B) {
	p := startServer(b)
	bootstrap(b, p, 0)
	run(b, connect(b, p, "", ""), "CREATE DATABASE many")
	many := connect(b, p, "", "many")
	run(b, many, manyTables(2000))
	for _, c := range []struct {
		name, database string
		reuse          bool
	}{
		{"fresh/first", "postgres", false},
		{"fresh/again", "postgres", true},
		{"2000tables/first", "many", false},
		{"2000tables/again", "many", true},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkLoad(b, p, c.database, c.reuse) })
	}
}

func benchmarkLoad(b *testing.B, p *shardtest.Postgres, database string, reuse bool) {
	conn := connect(b, p, "pgshoal", database)
	loader := catalog.NewLoader()
	b.ReportAllocs()
	for b.Loop() {
		if !reuse {
			loader = catalog.NewLoader()
		}
		if _, err := loader.Load(testContext(b), querier{conn.PgConn()}, database, 1); err != nil {
			b.Fatal(err)
		}
	}
}

// manyTables makes n tables as applications have them: ten columns, a key, defaults, an index.
func manyTables(n int) string {
	return fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
		EXECUTE format('CREATE TABLE t%%s (id bigserial PRIMARY KEY, tenant bigint NOT NULL, name text NOT NULL,
			email varchar(80) UNIQUE, created timestamptz NOT NULL DEFAULT now(), updated timestamptz, total numeric(12,2) DEFAULT 0,
			kind int, note text, uid uuid DEFAULT gen_random_uuid())', i);
		IF i %% 100 = 0 THEN COMMIT; END IF;
	END LOOP; END $$`, n)
}
