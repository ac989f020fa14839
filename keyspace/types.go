package keyspace

import "fmt"

// Type is a column type that a key may have. The zero Type is none.
type Type uint8

// The key types.
const (
	Int2 Type = iota + 1
	Int4
	Int8
	Text
	Varchar
	Bpchar
	UUID
	Bytea
	Numeric
	Date
	Timestamp
	Timestamptz
	Bool
)

// typeFacts is what PostgreSQL's catalogs say about the key types.
var typeFacts = [...]struct {
	oid       uint32
	name      string
	canonical Type
	// function is the extended hash function of the type's default hash operator class.
	function string
	// callable: SQL may call the function on the type. Elsewhere the operator class borrows the function of
	// another type with the same representation, which SQL does not allow.
	callable bool
}{
	Int2:        {21, "smallint", Int8, "hashint2extended", true},
	Int4:        {23, "integer", Int8, "hashint4extended", true},
	Int8:        {20, "bigint", Int8, "hashint8extended", true},
	Text:        {25, "text", Text, "hashtextextended", true},
	Varchar:     {1043, "character varying", Text, "hashtextextended", true},
	Bpchar:      {1042, "character", Bpchar, "hashbpcharextended", true},
	UUID:        {2950, "uuid", UUID, "uuid_hash_extended", true},
	Bytea:       {17, "bytea", Bytea, "hashvarlenaextended", false},
	Numeric:     {1700, "numeric", Numeric, "hash_numeric_extended", true},
	Date:        {1082, "date", Date, "hashint4extended", false},
	Timestamp:   {1114, "timestamp without time zone", Timestamp, "timestamp_hash_extended", true},
	Timestamptz: {1184, "timestamp with time zone", Timestamptz, "timestamp_hash_extended", false},
	Bool:        {16, "boolean", Bool, "hashcharextended", false},
}

// TypeByOID returns the key type with PostgreSQL's type OID.
func TypeByOID(oid uint32) (Type, bool) {
	switch oid {
	case 20:
		return Int8, true
	case 23:
		return Int4, true
	case 25:
		return Text, true
	}
	for t := Int2; t <= Bool; t++ {
		if typeFacts[t].oid == oid {
			return t, true
		}
	}
	return 0, false
}

// Valid reports whether t is one of the key types.
func (t Type) Valid() bool { return t >= Int2 && t <= Bool }

// OID returns PostgreSQL's OID of the type, 0 for none.
func (t Type) OID() uint32 {
	if !t.Valid() {
		return 0
	}
	return typeFacts[t].oid
}

// String returns the type's name as PostgreSQL prints it.
func (t Type) String() string {
	if !t.Valid() {
		return "none"
	}
	return typeFacts[t].name
}

// SQL returns the canonical type as a cast is written: without a length, because character alone would mean one character.
func (t Type) SQL() string {
	if t.Canonical() == Bpchar {
		return "pg_catalog.bpchar"
	}
	return t.Canonical().String()
}

// Canonical returns the type that stands for all types whose equal values have equal hashes. Tables whose
// key columns have one canonical type can be co-located.
func (t Type) Canonical() Type {
	if !t.Valid() {
		return 0
	}
	return typeFacts[t].canonical
}

// Accepts reports whether a value of type from can be hashed as a key of type t: PostgreSQL compares the
// two with an operator under which equal values have the hash that a column of type t gives.
func (t Type) Accepts(from Type) bool {
	if !t.Valid() || !from.Valid() {
		return false
	}
	return typeFacts[t].canonical == typeFacts[from].canonical ||
		t == Numeric && typeFacts[from].canonical == Int8
}

// HashFunction returns the name of PostgreSQL's extended hash function for the type. SQL cannot call it on
// every type; HashExpression says what it can.
func (t Type) HashFunction() string {
	if !t.Valid() {
		return ""
	}
	return typeFacts[t].function
}

// MarshalText writes the type's name.
func (t Type) MarshalText() ([]byte, error) {
	if !t.Valid() {
		return nil, fmt.Errorf("type number %d is no key type", uint8(t))
	}
	return []byte(typeFacts[t].name), nil
}

// UnmarshalText reads the type's name.
func (t *Type) UnmarshalText(text []byte) error {
	for c := Int2; c <= Bool; c++ {
		if typeFacts[c].name == string(text) {
			*t = c
			return nil
		}
	}
	return fmt.Errorf("%q is no key type", text)
}
