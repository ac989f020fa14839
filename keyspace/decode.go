package keyspace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
)

var (
	// ErrNotProven means that only PostgreSQL can say which value is meant, or that the two types do not
	// compare in a way that is known here.
	ErrNotProven = errors.New("the key's value is known only to PostgreSQL")
	// ErrInvalid means that there is no such value of the key's type: PostgreSQL raises an error for it, or
	// no row can match it.
	ErrInvalid = errors.New("not a value of the key's type")
)

// HashText returns the extended hash of a value that is written in the text format of type from, as a key of
// type key. It allocates nothing.
//
// The text is in the server's encoding, and text columns have a deterministic collation. Type modifiers
// (varchar(n), numeric(p,s), timestamp(p)) are applied by whoever knows them.
func HashText(key, from Type, text []byte) (uint64, error) {
	return hashText(key, from, text, HashSeed)
}

func hashText(key, from Type, text []byte, seed uint64) (uint64, error) {
	if !key.Accepts(from) {
		return 0, ErrNotProven
	}
	switch from {
	case Int2, Int4, Int8, Date, Timestamp, Timestamptz, Bool:
		v, err := parseFixed(from, text)
		if err != nil {
			return 0, err
		}
		return hashFixed(key, from, v, seed)
	case Text, Varchar, Bpchar:
		return hashString(key, text, seed)
	case UUID:
		u, err := parseUUID(text)
		if err != nil {
			return 0, err
		}
		return hashBytes(u[:], seed), nil
	case Bytea:
		return hashByteaText(text, seed)
	case Numeric:
		n, err := parseNumericText(text)
		if err != nil {
			return 0, err
		}
		return n.hash(seed), nil
	}
	return 0, ErrNotProven
}

// HashBinary is HashText for a value in the binary format of type from.
func HashBinary(key, from Type, data []byte) (uint64, error) {
	return hashBinary(key, from, data, HashSeed)
}

func hashBinary(key, from Type, data []byte, seed uint64) (uint64, error) {
	if !key.Accepts(from) {
		return 0, ErrNotProven
	}
	switch from {
	case Int2, Int4, Int8, Date, Timestamp, Timestamptz, Bool:
		v, err := readFixedBinary(from, data)
		if err != nil {
			return 0, err
		}
		return hashFixed(key, from, v, seed)
	case Text, Varchar, Bpchar:
		return hashString(key, data, seed)
	case UUID:
		if len(data) != 16 {
			return 0, ErrInvalid
		}
		return hashBytes(data, seed), nil
	case Bytea:
		return hashBytes(data, seed), nil
	case Numeric:
		n, err := parseNumericBinary(data)
		if err != nil {
			return 0, err
		}
		return n.hash(seed), nil
	}
	return 0, ErrNotProven
}

// parseFixed reads the types that are one signed integer.
func parseFixed(from Type, text []byte) (int64, error) {
	switch from {
	case Date:
		return parseDate(text)
	case Timestamp, Timestamptz:
		return parseTimestamp(text, from == Timestamptz)
	case Bool:
		b, err := parseBool(text)
		if b {
			return 1, err
		}
		return 0, err
	}
	n, err := parseInt(text)
	if err == nil && !fitsInteger(from, n) {
		err = ErrInvalid
	}
	return n, err
}

// readFixedBinary reads the types whose binary format is one signed integer.
func readFixedBinary(from Type, data []byte) (int64, error) {
	var v int64
	switch {
	case len(data) == 8 && (from == Int8 || from == Timestamp || from == Timestamptz):
		v = int64(binary.BigEndian.Uint64(data))
	case len(data) == 4 && (from == Int4 || from == Date):
		v = int64(int32(binary.BigEndian.Uint32(data)))
	case len(data) == 2 && from == Int2:
		v = int64(int16(binary.BigEndian.Uint16(data)))
	case len(data) == 1 && from == Bool:
		if data[0] != 0 {
			v = 1
		}
	default:
		return 0, ErrInvalid
	}
	if from == Date && !validDate(v) || (from == Timestamp || from == Timestamptz) && !validTimestamp(v) {
		return 0, ErrInvalid
	}
	return v, nil
}

// hashFixed hashes the types that are one signed integer.
func hashFixed(key, from Type, v int64, seed uint64) (uint64, error) {
	switch from {
	case Date, Bool:
		return hashUint32(uint32(v), seed), nil
	case Timestamp, Timestamptz:
		return hashInt64(v, seed), nil
	}
	if !fitsInteger(key, v) {
		return 0, ErrInvalid
	}
	if key == Numeric {
		n := numericOfInt(v)
		return n.hash(seed), nil
	}
	return hashInt64(v, seed), nil
}

func fitsInteger(t Type, v int64) bool {
	switch t {
	case Int2:
		return v == int64(int16(v))
	case Int4:
		return v == int64(int32(v))
	}
	return true
}

func hashString(key Type, s []byte, seed uint64) (uint64, error) {
	if bytes.IndexByte(s, 0) >= 0 {
		return 0, ErrInvalid // no server encoding has it
	}
	if key == Bpchar {
		for len(s) > 0 && s[len(s)-1] == ' ' {
			s = s[:len(s)-1]
		}
	}
	return hashBytes(s, seed), nil
}

// trimSpace removes what isspace() accepts in the C locale, as PostgreSQL's input functions do.
func trimSpace(s []byte) []byte {
	for len(s) > 0 && isSpace(s[0]) {
		s = s[1:]
	}
	for len(s) > 0 && isSpace(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func isSpace(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' }

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// malformedNumber tells what PostgreSQL 15 refuses but a later one reads (hexadecimal, octal and binary
// integers, underscores between digits) from what all of them refuse. A byte outside ASCII may be a blank in
// the server's locale.
func malformedNumber(s []byte) error {
	for i, b := range s {
		letter := b | 0x20
		if b == '_' || b >= 0x80 || i > 0 && s[i-1] == '0' && (letter == 'x' || letter == 'o' || letter == 'b') {
			return ErrNotProven
		}
	}
	return ErrInvalid
}

func parseInt(text []byte) (int64, error) {
	s := trimSpace(text)
	negative := false
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		negative = s[0] == '-'
		s = s[1:]
	}
	if len(s) == 0 {
		return 0, malformedNumber(text)
	}
	var v uint64
	overflow := false
	for _, b := range s {
		if !isDigit(b) {
			return 0, malformedNumber(text)
		}
		d := uint64(b - '0')
		if v > (math.MaxUint64-d)/10 {
			overflow = true // go on: the text may still be malformed in a way that decides the error
			continue
		}
		v = v*10 + d
	}
	switch {
	case overflow:
		return 0, ErrInvalid
	case negative && v <= 1<<63:
		return -int64(v), nil
	case !negative && v <= math.MaxInt64:
		return int64(v), nil
	}
	return 0, ErrInvalid
}

// parseBool accepts the words of boolin and every unique prefix of them.
func parseBool(text []byte) (bool, error) {
	s := trimSpace(text)
	switch {
	case isPrefixFold(s, "true", 1), isPrefixFold(s, "yes", 1), isPrefixFold(s, "on", 2), isPrefixFold(s, "1", 1):
		return true, nil
	case isPrefixFold(s, "false", 1), isPrefixFold(s, "no", 1), isPrefixFold(s, "off", 2), isPrefixFold(s, "0", 1):
		return false, nil
	}
	for _, b := range s {
		if b >= 0x80 {
			return false, ErrNotProven
		}
	}
	return false, ErrInvalid
}

// isPrefixFold reports whether s is a prefix of word, at least shortest bytes long, in any case.
func isPrefixFold(s []byte, word string, shortest int) bool {
	if len(s) < shortest || len(s) > len(word) {
		return false
	}
	for i, b := range s {
		if b >= 'A' && b <= 'Z' {
			b |= 0x20
		}
		if b != word[i] {
			return false
		}
	}
	return true
}

func equalFold(s []byte, word string) bool { return isPrefixFold(s, word, len(word)) }

// parseUUID follows uuid_in: optional braces, an optional dash after every four digits.
func parseUUID(s []byte) (u [16]byte, err error) {
	if len(s) > 1 && s[0] == '{' {
		if s[len(s)-1] != '}' {
			return u, ErrInvalid
		}
		s = s[1 : len(s)-1]
	}
	for i := range u {
		if len(s) < 2 {
			return u, ErrInvalid
		}
		high, low := hexDigit(s[0]), hexDigit(s[1])
		if high < 0 || low < 0 {
			return u, ErrInvalid
		}
		u[i] = byte(high<<4 | low)
		s = s[2:]
		if i%2 == 1 && i < len(u)-1 && len(s) > 0 && s[0] == '-' {
			s = s[1:]
		}
	}
	if len(s) != 0 {
		return u, ErrInvalid
	}
	return u, nil
}

func hexDigit(b byte) int {
	switch {
	case isDigit(b):
		return int(b - '0')
	case b >= 'a' && b <= 'f':
		return int(b-'a') + 10
	case b >= 'A' && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}
