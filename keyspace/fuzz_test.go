package keyspace_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
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
	f.Fuzz(func(t *testing.T, text []byte, point uint64) {
		var m keyspace.Map
		if json.Unmarshal(text, &m) != nil || m.Validate() != nil {
			return
		}
		for _, d := range m.Distributions {
			if s := d.FindHash(point); pointOf(s.Low) > point {
				t.Fatalf("point %x was found in the shard that begins at %x", point, s.Low)
			}
		}
	})
}
