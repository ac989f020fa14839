package keyspace_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/shardtest"
)

var allTypes = []keyspace.Type{
	keyspace.Int2, keyspace.Int4, keyspace.Int8, keyspace.Text, keyspace.Varchar, keyspace.Bpchar, keyspace.UUID,
	keyspace.Bytea, keyspace.Numeric, keyspace.Date, keyspace.Timestamp, keyspace.Timestamptz, keyspace.Bool,
}

// sqlName is the type's name without the length that "character" means.
func sqlName(t keyspace.Type) string {
	if t == keyspace.Bpchar {
		return "bpchar"
	}
	return t.String()
}

// sendFunction makes the binary format, so that the server itself says what it is.
func sendFunction(t keyspace.Type) string {
	return map[keyspace.Type]string{
		keyspace.Int2: "int2send", keyspace.Int4: "int4send", keyspace.Int8: "int8send", keyspace.Text: "textsend",
		keyspace.Varchar: "varcharsend", keyspace.Bpchar: "bpcharsend", keyspace.UUID: "uuid_send",
		keyspace.Bytea: "byteasend", keyspace.Numeric: "numeric_send", keyspace.Date: "date_send",
		keyspace.Timestamp: "timestamp_send", keyspace.Timestamptz: "timestamptz_send", keyspace.Bool: "boolsend",
	}[t]
}

// operatorClassHash calls what the type's own hash operator class calls, whatever function that is.
func operatorClassHash(value string) string { return "hash_record_extended(ROW(" + value + "), 0)" }

func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	pg := shardtest.StartPostgres(t, "wal_level=logical")
	conn, err := pgx.Connect(t.Context(), pg.DSN("", ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func execSQL(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// newRandom prints its seed when the test fails, so that the failure can be had again.
func newRandom(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("random seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// answer is what the server makes of one text.
type answer struct {
	text   string // as it was given
	output string
	binary []byte
	hash   uint64 // by the operator class
	direct uint64 // by HashExpression
}

func ask(t *testing.T, conn *pgx.Conn, key, from keyspace.Type, texts []string) []answer {
	t.Helper()
	value := "(x::" + sqlName(from) + ")"
	keyed := "(" + value + "::" + sqlName(key) + ")"
	sql := fmt.Sprintf("SELECT x, %s::text, %s(%s), %s, %s FROM unnest($1::text[]) WITH ORDINALITY AS u(x, n) ORDER BY n",
		value, sendFunction(from), value, operatorClassHash(keyed), key.HashExpression(keyed))
	rows, err := conn.Query(t.Context(), sql, texts)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (answer, error) {
		var a answer
		var hash, direct int64
		err := row.Scan(&a.text, &a.output, &a.binary, &hash, &direct)
		a.hash, a.direct = uint64(hash), uint64(direct)
		return a, err
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if len(answers) != len(texts) {
		t.Fatalf("%d answers for %d texts", len(answers), len(texts))
	}
	return answers
}

func TestHashEqualsServer(t *testing.T) {
	conn := connect(t)
	const values = 6000
	for _, from := range allTypes {
		t.Run(from.String(), func(t *testing.T) {
			r := newRandom(t)
			texts := make([]string, values)
			for i := range texts {
				texts[i] = randomText(r, from)
			}
			for _, a := range ask(t, conn, from, from, texts) {
				if a.hash != a.direct {
					t.Fatalf("%q: the server's %s is %d, its operator class says %d",
						a.text, from.HashExpression("x"), a.direct, a.hash)
				}
				checkHash(t, a.hash, "text "+strconv.Quote(a.text))(keyspace.HashText(from, from, []byte(a.text)))
				checkHash(t, a.hash, "output "+strconv.Quote(a.output))(keyspace.HashText(from, from, []byte(a.output)))
				checkHash(t, a.hash, fmt.Sprintf("binary %x of %q", a.binary, a.text))(keyspace.HashBinary(from, from, a.binary))
			}
		})
	}
}

func checkHash(t *testing.T, want uint64, what string) func(uint64, error) {
	t.Helper()
	return func(got uint64, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Fatalf("%s: hash %d, error %v; the server says %d", what, int64(got), err, int64(want))
		}
	}
}

// Equal values of a family have equal hashes on the server, and every pair that Accepts allows is hashed as
// the server hashes the value converted to the key's type. All other pairs are refused.
func TestHashAcrossTypes(t *testing.T) {
	conn := connect(t)
	accepted := map[[2]keyspace.Type]bool{}
	for _, key := range allTypes {
		for _, from := range allTypes {
			if key.Canonical() == from.Canonical() {
				accepted[[2]keyspace.Type{key, from}] = true
			}
		}
	}
	for _, from := range []keyspace.Type{keyspace.Int2, keyspace.Int4, keyspace.Int8} {
		accepted[[2]keyspace.Type{keyspace.Numeric, from}] = true
	}
	for _, key := range allTypes {
		for _, from := range allTypes {
			t.Run(fmt.Sprintf("%s from %s", key, from), func(t *testing.T) {
				r := newRandom(t)
				if !accepted[[2]keyspace.Type{key, from}] {
					text := []byte(randomText(r, from))
					if _, err := keyspace.HashText(key, from, text); !errors.Is(err, keyspace.ErrNotProven) {
						t.Errorf("text %q: error %v", text, err)
					}
					if _, err := keyspace.HashBinary(key, from, text); !errors.Is(err, keyspace.ErrNotProven) {
						t.Errorf("binary %q: error %v", text, err)
					}
					return
				}
				texts := make([]string, 1000)
				for i := range texts {
					texts[i] = randomText(r, from)
					if isInteger(key) && isInteger(from) {
						texts[i] = randomText(r, min(key, from)) // what both types can hold
					}
				}
				for _, a := range ask(t, conn, key, from, texts) {
					checkHash(t, a.hash, "text "+strconv.Quote(a.text))(keyspace.HashText(key, from, []byte(a.text)))
					checkHash(t, a.hash, fmt.Sprintf("binary of %q", a.text))(keyspace.HashBinary(key, from, a.binary))
				}
			})
		}
	}
}

func isInteger(t keyspace.Type) bool { return t.Canonical() == keyspace.Int8 }

func TestIntegerFamilyAgreesOnServer(t *testing.T) {
	conn := connect(t)
	var differ int
	if err := conn.QueryRow(t.Context(), `
		SELECT count(*) FROM generate_series(-32768, 32767) AS x
		WHERE hashint2extended(x::int2, 0) <> hashint8extended(x, 0) OR hashint4extended(x, 0) <> hashint8extended(x, 0)
	`).Scan(&differ); err != nil || differ != 0 {
		t.Errorf("all smallints: %d differ, error %v", differ, err)
	}
	r := newRandom(t)
	ints := []int32{math.MinInt32, math.MaxInt32}
	for range 20000 {
		ints = append(ints, int32(r.Uint32()))
	}
	if err := conn.QueryRow(t.Context(), `
		SELECT count(*) FROM unnest($1::int4[]) AS x WHERE hashint4extended(x, 0) <> hashint8extended(x, 0)
	`, ints).Scan(&differ); err != nil || differ != 0 {
		t.Errorf("random integers: %d differ, error %v", differ, err)
	}
}

// Whatever a text looks like: a hash is the server's, ErrInvalid is an error on the server too, under every
// DateStyle and TimeZone. Only ErrNotProven may be anything.
func TestStrangeTextNeverHashesWrong(t *testing.T) {
	conn := connect(t)
	execSQL(t, conn, `
		CREATE FUNCTION try_hash(type text, x text) RETURNS bigint LANGUAGE plpgsql AS $$
		DECLARE h bigint;
		BEGIN
			EXECUTE format('SELECT hash_record_extended(ROW($1::%s), 0)', type) INTO h USING x;
			RETURN h;
		EXCEPTION WHEN data_exception THEN RETURN NULL;
		END $$`)
	settings := [][2]string{{"ISO, MDY", "UTC"}, {"SQL, DMY", "Asia/Kolkata"}, {"German, DMY", "America/St_Johns"}, {"Postgres, YMD", "Pacific/Apia"}}
	const values = 1500
	for _, typ := range allTypes {
		t.Run(typ.String(), func(t *testing.T) {
			r := newRandom(t)
			outcomes := map[error]int{}
			for _, s := range settings {
				execSQL(t, conn, "SELECT set_config('DateStyle', $1, false), set_config('TimeZone', $2, false)", s[0], s[1])
				texts := make([]string, values)
				for i := range texts {
					texts[i] = strangeText(r, typ)
				}
				for i, h := range tryHash(t, conn, typ, texts) {
					got, err := keyspace.HashText(typ, typ, []byte(texts[i]))
					outcomes[err]++
					switch {
					case err == nil && (h == nil || uint64(*h) != got):
						t.Errorf("%q under %v: hash %d, the server says %v", texts[i], s, int64(got), show(h))
					case errors.Is(err, keyspace.ErrInvalid) && h != nil:
						t.Errorf("%q under %v: invalid, the server says %v", texts[i], s, show(h))
					}
				}
			}
			if outcomes[nil] < values/10 {
				t.Errorf("only %d of %d texts were hashed: the test has no teeth", outcomes[nil], values*len(settings))
			}
			t.Logf("outcomes: %v", outcomes)
		})
	}
}

// The same for the binary format: random changes to what the server sends, given back to it.
func TestStrangeBinaryNeverHashesWrong(t *testing.T) {
	conn := connect(t)
	for _, typ := range allTypes {
		t.Run(typ.String(), func(t *testing.T) {
			r := newRandom(t)
			texts := make([]string, 1000)
			for i := range texts {
				texts[i] = randomText(r, typ)
			}
			outcomes := map[error]int{}
			for _, a := range ask(t, conn, typ, typ, texts) {
				data := strangeBinary(r, typ, a.binary)
				got, err := keyspace.HashBinary(typ, typ, data)
				outcomes[err]++
				want := receive(t, conn, typ, data)
				switch {
				case err == nil && want == nil && isString(typ) && !utf8.Valid(data):
					// Which bytes are text is for the server's encoding to say; the hash is not used then.
				case err == nil && (want == nil || uint64(*want) != got):
					t.Errorf("%x: hash %d, the server says %s", data, int64(got), show(want))
				case errors.Is(err, keyspace.ErrInvalid) && want != nil:
					t.Errorf("%x: invalid, the server says %s", data, show(want))
				}
			}
			if outcomes[nil] < len(texts)/10 {
				t.Errorf("only %d of %d values were hashed: the test has no teeth", outcomes[nil], len(texts))
			}
			t.Logf("outcomes: %v", outcomes)
		})
	}
}

func isString(t keyspace.Type) bool { return t.Canonical() == keyspace.Text || t == keyspace.Bpchar }

// receive returns the server's hash of a binary parameter, nil when it refuses it.
func receive(t *testing.T, conn *pgx.Conn, typ keyspace.Type, data []byte) *int64 {
	t.Helper()
	const binaryFormat = 1
	if data == nil {
		data = []byte{} // nil would be NULL
	}
	result := conn.PgConn().ExecParams(t.Context(), "SELECT "+operatorClassHash("$1"), [][]byte{data},
		[]uint32{typ.OID()}, []int16{binaryFormat}, nil).Read()
	var refused *pgconn.PgError
	if errors.As(result.Err, &refused) && strings.HasPrefix(refused.Code, "22") || refused != nil && refused.Code == "08P01" {
		return nil
	}
	if result.Err != nil {
		t.Fatalf("%x: %v", data, result.Err)
	}
	h, err := strconv.ParseInt(string(result.Rows[0][0]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return &h
}

func show(h *int64) string {
	if h == nil {
		return "invalid"
	}
	return strconv.FormatInt(*h, 10)
}

func tryHash(t *testing.T, conn *pgx.Conn, typ keyspace.Type, texts []string) []*int64 {
	t.Helper()
	rows, err := conn.Query(t.Context(),
		"SELECT try_hash($1, x) FROM unnest($2::text[]) WITH ORDINALITY AS u(x, n) ORDER BY n", sqlName(typ), texts)
	if err != nil {
		t.Fatal(err)
	}
	hashes, err := pgx.CollectRows(rows, pgx.RowTo[*int64])
	if err != nil {
		t.Fatal(err)
	}
	return hashes
}

// The row filters of a distribution's shards put every row into exactly one, the one FindHash names, and
// triggers and publications take them.
func TestRowFilter(t *testing.T) {
	conn := connect(t)
	m := keyspace.NewMap("test")
	m, err := m.AddNode(keyspace.Node{Name: "n1", Addresses: []string{"a:1"}, State: keyspace.NodeActive})
	if err != nil {
		t.Fatal(err)
	}
	execSQL(t, conn, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''fenced''; END'")
	for _, typ := range allTypes {
		t.Run(typ.String(), func(t *testing.T) {
			_, d, err := m.CreateDistribution("app", keyspace.HashKey(typ), keyspace.Layout{Shards: 7})
			if err != nil {
				t.Fatal(err)
			}
			table := pgx.Identifier{"rows of " + typ.String()}.Sanitize()
			execSQL(t, conn, "CREATE TABLE "+table+` (n int PRIMARY KEY, "the key" `+sqlName(typ)+")")
			r := newRandom(t)
			texts := make([]string, 2000)
			want := make(map[uint32]int)
			for i := range texts {
				texts[i] = randomText(r, typ)
				hash, err := keyspace.HashText(typ.Canonical(), typ, []byte(texts[i]))
				if err != nil {
					t.Fatal(err)
				}
				want[d.FindHash(keyspace.Point(hash)).ID]++
			}
			execSQL(t, conn, "INSERT INTO "+table+" SELECT n, x::"+sqlName(typ)+" FROM unnest($1::text[]) WITH ORDINALITY AS u(x, n)", texts)
			for i, s := range d.Shards {
				filter := typ.RowFilter(`"the key"`, s.Low, high(d, i))
				var got int
				if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM "+table+" WHERE "+filter).Scan(&got); err != nil {
					t.Fatalf("%s: %v", filter, err)
				}
				if got != want[s.ID] {
					t.Errorf("%s: %d rows, want %d", filter, got, want[s.ID])
				}
				execSQL(t, conn, fmt.Sprintf(`CREATE PUBLICATION "p %s %d" FOR TABLE %s WHERE (%s)`, typ, i, table, filter))
				fence := typ.RowFilter(`NEW."the key"`, s.Low, high(d, i))
				execSQL(t, conn, fmt.Sprintf("CREATE TRIGGER fence%d BEFORE INSERT ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION refuse()", i, table, fence))
			}
			if _, err := conn.Exec(t.Context(), "INSERT INTO "+table+" SELECT 0, $1::text::"+sqlName(typ), texts[0]); err == nil || !strings.Contains(err.Error(), "fenced") {
				t.Errorf("an insert into a fenced shard: error %v", err)
			}
		})
	}
}

func high(d *keyspace.Distribution, i int) []byte {
	_, high := d.Interval(i)
	return high
}
