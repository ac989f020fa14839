package sqldiff

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/shardtest"
)

// TestSameAnswers is the short form of `make sqldiff`: a part of the corpus, chosen anew every day, the
// order-entry mix and random statements on one cluster. Refusals and known bugs are allowed, other differences are not.
func TestSameAnswers(t *testing.T) {
	day := uint64(time.Now().Unix() / (24 * 60 * 60))
	t.Logf("seed %d", day)
	report, err := Run(t.Context(), t, Options{
		Shapes: []Shape{{3, []string{"hash"}}}, Every: 16, Modes: []Mode{Simple, Prepared},
		Mix: 8, Random: 8 * time.Second, Seed: day, Out: &logWriter{t},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := report.unknown; n > 0 {
		t.Errorf("%d differences", n)
	}
	if report.runs < 100 {
		t.Errorf("only %d comparisons", report.runs)
	}
}

// logWriter puts the report into the test's log.
type logWriter struct{ tb testing.TB }

func (w *logWriter) Write(b []byte) (int, error) {
	w.tb.Log(strings.TrimRight(string(b), "\n"))
	return len(b), nil
}

// halves spreads the rows over two databases, each customer with its orders and items.
func halves(rows Rows) (a, b Rows) {
	a, b = Rows{}, Rows{}
	for table, lines := range rows {
		for _, line := range lines {
			key, _, _ := strings.Cut(line, "\t")
			switch p := Layouts()[0].Placed[table]; {
			case p.Reference:
				a[table], b[table] = append(a[table], line), append(b[table], line)
			case p.Key == "" || strings.ContainsAny(key[len(key)-1:], "02468"):
				a[table] = append(a[table], line)
			default:
				b[table] = append(b[table], line)
			}
		}
	}
	return a, b
}

// TestFindsWrongAnswers asks one of two nodes instead of a router: a proxy that answers for one node, or
// writes to one only, must be found out.
func TestFindsWrongAnswers(t *testing.T) {
	ctx := t.Context()
	rows := NewRows()
	server := shardtest.StartPostgres(t, settings...)
	plain, err := newPlain(ctx, server, "oracle", rows, false)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.close()
	oracle, err := NewOracle(ctx, plain)
	if err != nil {
		t.Fatal(err)
	}
	first, second := halves(rows)
	target, err := newPlain(ctx, server, "first", first, false)
	if err != nil {
		t.Fatal(err)
	}
	defer target.close()
	other, err := newPlain(ctx, server, "second", second, false)
	if err != nil {
		t.Fatal(err)
	}
	defer other.client.close()
	target.nodes, target.placed = append(target.nodes, other.nodes...), Layouts()[0].Placed
	target.nodes[0].misplaced = map[string]string{"customers": "x.id % 2 <> 0"}
	target.nodes[1].misplaced = map[string]string{"customers": "x.id % 2 = 0"}
	for _, sql := range []string{
		"SELECT count(*) FROM orders", "SELECT * FROM customers", "SELECT id FROM customers ORDER BY id LIMIT 5",
		"SELECT status, sum(total) FROM orders GROUP BY status", "SELECT id FROM customers WHERE id NOT IN (SELECT customer_id FROM orders)",
		"UPDATE countries SET population = 0", "DELETE FROM orders WHERE status = 'lost'", "TRUNCATE items",
		"INSERT INTO customers (id, name) SELECT g, 'x' FROM generate_series(1000, 1020) g",
	} {
		o, err := oracle.Check(ctx, target, &Case{Steps: []string{sql}, Writes: writes.MatchString(sql)}, Simple)
		if err != nil {
			t.Fatal(err)
		}
		if o.Verdict != Different {
			t.Errorf("%s on one node of two is taken for right", sql)
		}
	}
	// Everything was restored: the next comparison begins where the first one did.
	now, _, wrong, err := target.contents(ctx, shopTables())
	if err != nil || wrong != "" || differentTable(oracle.baseline, now) != "" {
		t.Errorf("after the cases: %s %s %v", wrong, differentTable(oracle.baseline, now), err)
	}
}

func TestCorpus(t *testing.T) {
	cases, err := ReadCorpus()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.String()] && c.Params == nil && c.Data == "" {
			t.Errorf("%s:%d is there twice: %s", c.File, c.Line, c)
		}
		seen[c.String()] = true
	}
	if len(cases) < 800 {
		t.Errorf("only %d cases", len(cases))
	}
}

func TestParseCases(t *testing.T) {
	cases, err := parseCases("10-some.sql", "-- about\nSELECT 1;\n--@ approx\n--@ params 1 | NULL\nSELECT $1,\n  $2;\nBEGIN;\nINSERT INTO t VALUES (1);\nROLLBACK TO s;\nCOMMIT;\nTABLE t;\n")
	if err != nil {
		t.Fatal(err)
	}
	var steps []int
	for _, c := range cases {
		steps = append(steps, len(c.Steps))
	}
	if !slices.Equal(steps, []int{1, 1, 4, 1}) || cases[1].Line != 5 || !cases[1].Approx || len(cases[1].Params) != 2 || cases[1].Params[1] != nil || !cases[2].Writes || cases[3].Writes {
		t.Errorf("got %+v, %v", cases[1], steps)
	}
	for _, wrong := range []string{"BEGIN; SELECT 1;", "--@ nonsense\nSELECT 1;", "SELECT 'open"} {
		if _, err := parseCases("10-some.sql", wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

// TestLayoutsNameTables keeps layouts and schema in step.
func TestLayoutsNameTables(t *testing.T) {
	for _, l := range Layouts() {
		for name, p := range l.Placed {
			if !slices.Contains(tableNames(), name) || p.With != "" && l.Placed[p.With].Key == "" {
				t.Errorf("layout %s: %s is no table, or its companion is not distributed", l.Name, name)
			}
		}
	}
}

func TestDocumentHasMarks(t *testing.T) {
	text, err := os.ReadFile("../docs/sql-support.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newReport(&logWriter{t}).Replace(string(text)); err != nil {
		t.Error(err)
	}
}

func TestRandomStatementsRepeat(t *testing.T) {
	for seed := range uint64(500) {
		c := newChoices(seed)
		first := randomCase(c, seed)
		if again := randomCase(newChoices(seed), seed); again.String() != first.String() {
			t.Fatalf("seed %d gives %s, then %s", seed, first, again)
		}
		if replayed := randomCase(&choices{replay: c.recorded}, seed); replayed.String() != first.String() {
			t.Fatalf("seed %d gives %s, replayed %s", seed, first, replayed)
		}
	}
}

func TestShrink(t *testing.T) {
	long := 0
	for seed := range uint64(200) {
		c := newChoices(seed)
		if first := randomCase(c, seed).String(); !strings.Contains(first, "FULL JOIN") {
			continue
		}
		small := shrink(c.recorded, 2000, func(next []int) bool {
			return strings.Contains(randomCase(&choices{replay: next}, seed).String(), "FULL JOIN")
		})
		if sql := randomCase(&choices{replay: small}, seed).String(); len(sql) > 400 {
			long++
			t.Logf("seed %d shrinks only to %s", seed, sql)
		}
	}
	if long > 3 {
		t.Errorf("%d statements stay long", long)
	}
}
