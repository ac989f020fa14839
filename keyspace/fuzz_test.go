package keyspace_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/pgshoal/pgshoal/keyspace"
)

// FuzzHashText compares each decoder with a slower one from the standard library, where there is one.
func FuzzHashText(f *testing.F) {
	for _, typ := range allTypes {
		r := newSeeded(uint64(typ))
		for range 10 {
			f.Add(uint8(typ), []byte(randomText(r, typ)))
			f.Add(uint8(typ), []byte(strangeText(r, typ)))
		}
	}
	f.Fuzz(func(t *testing.T, number uint8, text []byte) {
		typ := keyspace.Type(number)
		hash, err := keyspace.HashText(typ, typ, text)
		if err != nil {
			if !errors.Is(err, keyspace.ErrInvalid) && !errors.Is(err, keyspace.ErrNotProven) {
				t.Fatalf("unexpected error %v", err)
			}
			return
		}
		blank := strings.Trim(string(text), " \t\n\v\f\r")
		switch typ {
		case keyspace.Int2, keyspace.Int4, keyspace.Int8:
			v, err := strconv.ParseInt(blank, 10, 64)
			if err != nil {
				t.Fatalf("%q was read: %v", text, err)
			}
			sameHash(t, hash, keyspace.Int8, strconv.FormatInt(v, 10))
			if _, err := keyspace.HashText(keyspace.Numeric, typ, text); err != nil {
				t.Fatalf("%q is no numeric: %v", text, err)
			}
		case keyspace.Bytea:
			if strings.HasPrefix(string(text), `\x`) {
				b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "", "\r", "").Replace(string(text[2:])))
				if err != nil {
					t.Fatalf("%q was read: %v", text, err)
				}
				if want, err := keyspace.HashBinary(typ, typ, b); err != nil || want != hash {
					t.Fatalf("%q hashes to %d, its bytes to %d, error %v", text, hash, want, err)
				}
			}
		case keyspace.Numeric:
			sameNumeric(t, hash, blank)
		case keyspace.Date, keyspace.Timestamp, keyspace.Timestamptz, keyspace.Bool:
			sameHash(t, hash, typ, " "+blank+"\t")
		}
	})
}

func sameHash(t *testing.T, hash uint64, typ keyspace.Type, text string) {
	t.Helper()
	if again, err := keyspace.HashText(typ, typ, []byte(text)); err != nil || again != hash {
		t.Fatalf("%q hashes to %d, error %v; another spelling of it to %d", text, again, err, hash)
	}
}

// sameNumeric checks that the value, written without an exponent and with more zeros, has the same hash.
func sameNumeric(t *testing.T, hash uint64, text string) {
	t.Helper()
	if len(text) > 5000 {
		return // the zeros added would pass the scale that is stored
	}
	if e := strings.IndexAny(text, "eE"); e >= 0 {
		if n, err := strconv.Atoi(text[e+1:]); err != nil || n > 2000 || n < -2000 {
			return // too long to write out
		}
	}
	v, ok := new(big.Rat).SetString(text)
	if !ok {
		return // NaN, Infinity
	}
	sameHash(t, hash, keyspace.Numeric, "0000"+strings.TrimPrefix(v.FloatString(len(text)+2001), "-")+"000")
}

func FuzzHashBinary(f *testing.F) {
	for _, typ := range allTypes {
		r := newSeeded(uint64(typ))
		for n := range 17 {
			f.Add(uint8(typ), randomBytes(r, n))
		}
	}
	f.Add(uint8(keyspace.Numeric), []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 1})
	f.Add(uint8(keyspace.Numeric), []byte{0, 3, 0, 1, 0x40, 0, 0, 9, 0, 0, 0x27, 0x0f, 0, 0})
	f.Fuzz(func(t *testing.T, number uint8, data []byte) {
		typ := keyspace.Type(number)
		before := string(data)
		hash, err := keyspace.HashBinary(typ, typ, data)
		if string(data) != before {
			t.Fatal("the data were changed")
		}
		if err != nil {
			if !errors.Is(err, keyspace.ErrInvalid) && !errors.Is(err, keyspace.ErrNotProven) {
				t.Fatalf("unexpected error %v", err)
			}
			return
		}
		// What a canonical column of the same value has.
		if again, err := keyspace.HashBinary(typ.Canonical(), typ, data); err != nil || again != hash {
			t.Fatalf("%x as %s hashes to %d, as %s to %d, error %v", data, typ, hash, typ.Canonical(), again, err)
		}
	})
}

// FuzzMapJSON: a map that Validate accepts answers every lookup.
func FuzzMapJSON(f *testing.F) {
	m := addNodes(f, keyspace.NewMap("test"), "a", "b")
	m, _, err := m.CreateDistribution("app", keyspace.HashKey(keyspace.Int8), keyspace.Layout{Shards: 3})
	if err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, uint64(1)<<63)
	for _, s := range strategies() {
		m, _, err := regionNodes(f).CreateDistribution("app", s.key, s.layout)
		if err != nil {
			f.Fatal(err)
		}
		if text, err = json.Marshal(m); err != nil {
			f.Fatal(err)
		}
		f.Add(text, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, point uint64) {
		var m keyspace.Map
		if json.Unmarshal(text, &m) != nil || m.Validate() != nil {
			return
		}
		for _, d := range m.Distributions {
			if s := d.FindHash(point); pointOf(s.Low) > point {
				t.Fatalf("point %x was found in the shard that begins at %x", point, s.Low)
			}
			if low := d.Shards[d.Find(bytesOf(point))].Low; bytes.Compare(low, bytesOf(point)) > 0 {
				t.Fatalf("point %x was found in the shard that begins at %x", point, low)
			}
		}
	})
}

// FuzzSplitAt: whatever bytes somebody names as a bound, the map is valid after a split and the bound can be shown and
// compared with rows.
func FuzzSplitAt(f *testing.F) {
	all := strategies()
	r := newSeeded(3)
	for i, s := range all {
		for range 5 {
			f.Add(uint8(i), s.someBound(f, r))
		}
	}
	f.Fuzz(func(t *testing.T, number uint8, at []byte) {
		s := all[int(number)%len(all)]
		m, d, err := regionNodes(t).CreateDistribution("app", s.key, s.layout)
		if err != nil {
			t.Fatal(err)
		}
		next, err := m.SplitShard(d.Shards[d.Find(at)].ID, at)
		if err != nil {
			return
		}
		if err := next.Validate(); err != nil {
			t.Fatal(err)
		}
		after := next.Distribution(d.ID)
		low := after.Shards[d.Find(at)+1].Low
		if shown := after.FormatBound(low); shown == "" || strings.HasPrefix(shown, fmt.Sprintf("%x", low)) {
			t.Fatalf("bound %x is shown as %q", low, shown)
		}
		if method := s.key.Dimensions[0].Method; method == keyspace.Directory || method == keyspace.Schema {
			return
		}
		if _, err := after.Filter(low, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzOrdered: equal encodings of a value as text and in the key's own terms.
func FuzzOrdered(f *testing.F) {
	for _, typ := range allTypes {
		r := newSeeded(uint64(typ))
		for range 10 {
			f.Add(uint8(typ), []byte(someText(r, typ)), false)
			f.Add(uint8(typ), randomBytes(r, r.IntN(20)), true)
		}
	}
	f.Fuzz(func(t *testing.T, number uint8, data []byte, binary bool) {
		typ := keyspace.Type(number)
		b, err := keyspace.AppendOrdered(nil, typ, keyspace.Value{Data: data, From: typ, Binary: binary})
		if err != nil {
			if !errors.Is(err, keyspace.ErrInvalid) && !errors.Is(err, keyspace.ErrNotProven) {
				t.Fatalf("unexpected error %v", err)
			}
			return
		}
		k := rangeKey(typ)
		again, err := k.ParseBound([]string{k.FormatBound(b)})
		if errors.Is(err, keyspace.ErrNotProven) {
			return // the edge of the years that are read
		}
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%q is %x, shown as %q and read as %x, error %v", data, b, k.FormatBound(b), again, err)
		}
	})
}
