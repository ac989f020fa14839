package keyspace_test

import (
	"encoding/json"
	"testing"

	"github.com/pgshoal/pgshoal/keyspace"
)

func TestTypesAreTheServers(t *testing.T) {
	conn := connect(t)
	var version int
	if err := conn.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatal(err)
	}
	for _, typ := range allTypes {
		var name string
		if err := conn.QueryRow(t.Context(), "SELECT format_type($1, NULL)", typ.OID()).Scan(&name); err != nil {
			t.Fatal(err)
		}
		if name != typ.String() {
			t.Errorf("type %s is called %q by the server", typ, name)
		}
		if byOID, ok := keyspace.TypeByOID(typ.OID()); !ok || byOID != typ {
			t.Errorf("OID %d is %s", typ.OID(), byOID)
		}
		if typ == keyspace.Varchar || version >= 180000 {
			continue // varchar uses text's operator class; PostgreSQL 18 gave date, bool, ... functions of their own name
		}
		var function string
		err := conn.QueryRow(t.Context(), `
			SELECT p.amproc::oid::regproc::text FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
			JOIN pg_amproc p ON p.amprocfamily = c.opcfamily AND p.amproclefttype = c.opcintype AND p.amprocnum = 2
			WHERE a.amname = 'hash' AND c.opcdefault AND c.opcintype = $1`, typ.OID()).Scan(&function)
		if err != nil || function != typ.HashFunction() {
			t.Errorf("type %s is hashed by %q on the server, by %q here; error %v", typ, function, typ.HashFunction(), err)
		}
	}
}

func TestTypeText(t *testing.T) {
	for _, typ := range allTypes {
		text, err := json.Marshal(typ)
		if err != nil {
			t.Fatal(err)
		}
		var again keyspace.Type
		if err := json.Unmarshal(text, &again); err != nil || again != typ {
			t.Errorf("%s became %s, error %v", text, again, err)
		}
	}
	var none keyspace.Type
	if _, err := json.Marshal(none); err == nil {
		t.Error("no type was written")
	}
	if err := json.Unmarshal([]byte(`"point"`), &none); err == nil {
		t.Error("an unknown type was read")
	}
	if none.Valid() || none.Canonical() != 0 || none.OID() != 0 || none.Accepts(none) || none.HashFunction() != "" {
		t.Error("the zero type is a type")
	}
	if _, ok := keyspace.TypeByOID(600); ok {
		t.Error("point is a key type")
	}
}

func TestRowFilterText(t *testing.T) {
	for _, c := range []struct {
		typ       keyspace.Type
		low, high []byte
		want      string
	}{
		{keyspace.Int4, nil, nil, "true"},
		{keyspace.Int4, []byte{}, []byte{0x80}, `(hashint4extended("k", 0) < 0)`},
		{keyspace.Int8, []byte{0x80}, nil, `(hashint8extended("k", 0) >= 0)`},
		{
			keyspace.UUID,
			[]byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
			[]byte{0x80, 0, 0, 0, 0, 0, 0, 7},
			`(uuid_hash_extended("k", 0) >= -1 AND uuid_hash_extended("k", 0) < 7)`,
		},
		{keyspace.Bytea, []byte{0x80}, nil, `(hash_record_extended(ROW("k"), 0) >= 0)`},
	} {
		if got := c.typ.RowFilter(`"k"`, c.low, c.high); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
