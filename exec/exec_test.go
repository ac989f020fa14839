package exec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
)

func elements(t interface{ Fatal(...any) }, v Value) []string {
	var got []string
	if err := eachElement(v, func(e Value) error {
		if e.Null {
			got = append(got, "<null>")
		} else {
			got = append(got, string(e.Data))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestTextArrays(t *testing.T) {
	for text, want := range map[string][]string{
		`{}`:                      nil,
		`{1,2,3}`:                 {"1", "2", "3"},
		`{ 1 , 2 }`:               {"1", "2"},
		`{NULL,"NULL",null}`:      {"<null>", "NULL", "<null>"},
		`{"a,b","c\"d","e\\f"}`:   {"a,b", `c"d`, `e\f`},
		`{{1,2},{3,4}}`:           {"1", "2", "3", "4"},
		`[0:1]={7,8}`:             {"7", "8"},
		`{"2020-01-01 00:00:00"}`: {"2020-01-01 00:00:00"},
	} {
		if got := elements(t, Value{Data: []byte(text)}); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{``, `1`, `{1`, `{"a}`, `{a"b}`} {
		err := eachElement(Value{Data: []byte(text)}, func(Value) error { return nil })
		if !errors.Is(err, errArray) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestArraysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.String()).Draw(t, "elements")
		quoted := make([]string, len(want))
		b := binary.BigEndian.AppendUint32(nil, 1)
		b = binary.BigEndian.AppendUint32(b, 0)
		b = binary.BigEndian.AppendUint32(b, 25)
		b = binary.BigEndian.AppendUint32(b, uint32(len(want)))
		b = binary.BigEndian.AppendUint32(b, 1)
		for i, s := range want {
			quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
			b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
			b = append(b, s...)
		}
		if len(want) == 0 {
			want = nil
		}
		if got := elements(t, Value{Data: []byte("{" + strings.Join(quoted, ",") + "}")}); !slices.Equal(got, want) {
			t.Fatalf("text: %q", got)
		}
		if got := elements(t, Value{Data: b, Binary: true}); !slices.Equal(got, want) {
			t.Fatalf("binary: %q", got)
		}
	})
}

func FuzzArrays(f *testing.F) {
	f.Add([]byte(`{1,"2",NULL}`), false)
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 7}, true)
	f.Fuzz(func(_ *testing.T, data []byte, isBinary bool) {
		_ = eachElement(Value{Data: data, Binary: isBinary}, func(Value) error { return nil })
	})
}

// constants are operands that stand in the plan itself.
type constants struct{}

func (constants) Value(o *plan.Operand) (Value, error) {
	return Value{Data: []byte(o.Text), Null: o.Null}, nil
}

// asked is an asker that remembers what it was asked.
type asked struct{ as []string }

func (a *asked) Canonical(_ keyspace.Type, as string, text []byte) ([]byte, error) {
	a.as = append(a.as, as)
	return text, nil
}

func (a *asked) Entry(*keyspace.Distribution, []byte, bool) (uint64, bool, error) {
	return 0, false, errors.New("no directory")
}

func testMap(t *testing.T) (*keyspace.Map, *keyspace.Distribution) {
	m := keyspace.NewMap("c")
	var err error
	for i := range 3 {
		if m, err = m.AddNode(keyspace.Node{Name: "n" + strconv.Itoa(i), Addresses: []string{"127.0.0.1:" + strconv.Itoa(7000+i)}, State: keyspace.NodeActive}); err != nil {
			t.Fatal(err)
		}
	}
	m, d, err := m.CreateDistribution("db", keyspace.HashKey(keyspace.Int8), keyspace.Layout{Shards: 32})
	if err != nil {
		t.Fatal(err)
	}
	return m, d
}

func key(text string) plan.Operand {
	return plan.Operand{Literal: -1, Text: text, From: keyspace.Int8}
}

func TestTarget(t *testing.T) {
	m, d := testMap(t)
	nodeOf := func(k int) string {
		h, err := keyspace.HashText(keyspace.Int8, keyspace.Int8, []byte(strconv.Itoa(k)))
		if err != nil {
			t.Fatal(err)
		}
		return d.FindHash(keyspace.Point(h)).Node
	}
	pinned := func(ops ...plan.Operand) *plan.Plan {
		return &plan.Plan{Pins: []plan.Pin{{Distribution: d.ID, Table: "t", Keys: []plan.KeyColumn{{Type: keyspace.Int8, Column: "t.k", Operands: ops}}}}}
	}
	other := 2
	for nodeOf(other) == nodeOf(1) {
		other++
	}
	for k := range 100 {
		if got, err := Target(m, pinned(key(strconv.Itoa(k))), constants{}, nil); err != nil || got != nodeOf(k) {
			t.Fatalf("key %d: %s, %v", k, got, err)
		}
	}
	if got, err := Target(m, &plan.Plan{}, constants{}, nil); err != nil || got != m.Home {
		t.Errorf("without pins: %s, %v", got, err)
	}
	null := plan.Operand{Literal: -1, Null: true, From: keyspace.Int8}
	if got, err := Target(m, pinned(null), constants{}, nil); err != nil || got != m.Home {
		t.Errorf("null matches nothing: %s, %v", got, err)
	}
	_, err := Target(m, pinned(key("1"), key(strconv.Itoa(other))), constants{}, nil)
	if several := (*SeveralNodes)(nil); !errors.As(err, &several) {
		t.Errorf("two nodes: %v", err)
	}
	insert := pinned(null)
	insert.Pins[0].Insert, insert.Pins[0].Keys[0].Assigned = true, true
	if _, err := Target(m, insert, constants{}, nil); !errors.As(err, new(*NullKey)) {
		t.Errorf("a new row without a key: %v", err)
	}
	array := key(fmt.Sprintf("{1,%d}", other))
	array.Array = true
	if _, err := Target(m, pinned(array), constants{}, nil); !errors.As(err, new(*SeveralNodes)) {
		t.Errorf("an array over two nodes: %v", err)
	}
}

// A value that storing may change is hashed by PostgreSQL, as the column's own type.
func TestStoredValues(t *testing.T) {
	name := &plan.KeyColumn{Type: keyspace.Varchar, Column: "t.k", Assigned: true, Cast: "character varying(3)", Length: 3}
	ask := &asked{}
	for _, v := range []string{"abc", "äöü", "abc  "} {
		if _, _, err := hashOf(name, keyspace.Varchar, Value{Data: []byte(v)}, ask); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"character varying(3)"}; !slices.Equal(ask.as, want) {
		t.Errorf("asked for %q, want %q", ask.as, want)
	}
	number := &plan.KeyColumn{Type: keyspace.Numeric, Column: "t.k", Assigned: true, Cast: "numeric(10,2)"}
	if _, _, err := hashOf(number, keyspace.Numeric, Value{Data: []byte("1.005")}, ask); err != nil || len(ask.as) != 2 {
		t.Errorf("numeric(10,2): %v, asked %q", err, ask.as)
	}
	if _, _, err := hashOf(number, keyspace.Numeric, Value{Data: []byte{0}, Binary: true}, ask); !errors.Is(err, keyspace.ErrNotProven) {
		t.Errorf("binary numeric(10,2): %v", err)
	}
}
