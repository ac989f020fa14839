package keyspace_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/keyspace"
)

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomText returns a text that PostgreSQL accepts for the type and that must be hashed here.
func randomText(r *rand.Rand, t keyspace.Type) string {
	switch t {
	case keyspace.Int2:
		return blanks(r, strconv.Itoa(int(int16(r.Uint32()))>>r.IntN(16)))
	case keyspace.Int4:
		return blanks(r, strconv.Itoa(int(int32(r.Uint32()))>>r.IntN(32)))
	case keyspace.Int8:
		return blanks(r, randomInt8(r))
	case keyspace.Text, keyspace.Varchar, keyspace.Bpchar:
		return randomString(r)
	case keyspace.UUID:
		return randomUUID(r)
	case keyspace.Bytea:
		return randomBytea(r)
	case keyspace.Numeric:
		return blanks(r, randomNumeric(r))
	case keyspace.Date:
		return blanks(r, randomDate(r, 5874896))
	case keyspace.Timestamp, keyspace.Timestamptz:
		return blanks(r, randomTimestamp(r, t == keyspace.Timestamptz))
	default:
		return blanks(r, pick(r, "t", "TRUE", "tru", "y", "yEs", "on", "1", "f", "False", "fa", "n", "NO", "off", "of", "0"))
	}
}

func randomInt8(r *rand.Rand) string {
	s := strconv.FormatInt(int64(r.Uint64())>>r.IntN(64), 10)
	if s[0] == '-' {
		return s
	}
	return pick(r, "", "", "+", "000", "-00") + s
}

func blanks(r *rand.Rand, s string) string {
	if r.IntN(8) > 0 {
		return s
	}
	return pick(r, "", " ", "\t\n", "\v\f\r ") + s + pick(r, "", " ", "\t\n", "\v\f\r ")
}

func randomString(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(1 << r.IntN(8)) {
		b.WriteRune(pick(r, 'a', 'Z', ' ', ' ', '\'', '\\', 'é', '漢', '\U0001f418', rune('!'+r.IntN(90))))
	}
	return b.String() + pick(r, "", "", "  ")
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func randomUUID(r *rand.Rand) string {
	digits := hex.EncodeToString(randomBytes(r, 16))
	if r.IntN(3) == 0 {
		digits = strings.ToUpper(digits)
	}
	var b strings.Builder
	dashed := r.IntN(3)
	for i := 0; i < len(digits); i += 4 {
		b.WriteString(digits[i : i+4])
		standard := i == 4 || i == 8 || i == 12 || i == 16
		if dashed == 0 && standard || dashed == 1 && i < 28 && r.IntN(2) == 0 {
			b.WriteByte('-')
		}
	}
	if r.IntN(4) == 0 {
		return "{" + b.String() + "}"
	}
	return b.String()
}

func randomBytea(r *rand.Rand) string {
	data := randomBytes(r, r.IntN(1<<r.IntN(7)))
	var b strings.Builder
	if r.IntN(2) == 0 {
		b.WriteString(`\x`)
		for _, c := range data {
			b.WriteString(fmt.Sprintf(pick(r, "%02x", "%02X"), c) + pick(r, "", "", "", " ", "\n"))
		}
		return b.String()
	}
	for _, c := range data {
		switch {
		case c == '\\':
			b.WriteString(`\\`)
		case c < ' ' || c > '~' || r.IntN(8) == 0:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func randomDigits(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte(pick(r, '0', '0', '0', byte('0'+r.IntN(10)), byte('0'+r.IntN(10))))
	}
	return b.String()
}

func randomNumeric(r *rand.Rand) string {
	if r.IntN(40) == 0 {
		return pick(r, "NaN", "nan", "Infinity", "-Infinity", "+infinity", "inf", "-INF", "0", "-0.000", "0e10")
	}
	s := pick(r, "", "-", "+")
	whole, fraction := r.IntN(1<<r.IntN(7)), r.IntN(1<<r.IntN(7))
	if whole+fraction == 0 {
		whole = 1
	}
	s += randomDigits(r, whole)
	if fraction > 0 || r.IntN(4) == 0 {
		s += "." + randomDigits(r, fraction)
	}
	if r.IntN(3) == 0 {
		s += pick(r, "e", "E") + pick(r, "", "+", "-") + strconv.Itoa(r.IntN(1<<r.IntN(14)))
	}
	return s
}

func randomDate(r *rand.Rand, maxYear int) string {
	if r.IntN(60) == 0 {
		return pick(r, "infinity", "-infinity")
	}
	if r.IntN(8) == 0 {
		return randomDay(r, 4711) + " BC"
	}
	return randomDay(r, maxYear)
}

func randomDay(r *rand.Rand, maxYear int) string {
	year := min(maxYear, pick(r, 1+r.IntN(9999), 1900+r.IntN(200), 2000+4*r.IntN(30), 1+r.IntN(maxYear)))
	month := 1 + r.IntN(12)
	days := [...]int{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[month-1]
	if month == 2 && maxYear > 4711 && year%4 == 0 && (year%100 != 0 || year%400 == 0) {
		days = 29 // leap years before Christ are others; strangeDates has some
	}
	return fmt.Sprintf("%04d-%02d-%02d", year, month, 1+r.IntN(days))
}

func randomTimestamp(r *rand.Rand, zoned bool) string {
	if r.IntN(60) == 0 {
		return pick(r, "infinity", "-infinity")
	}
	if r.IntN(8) == 0 {
		return randomDay(r, 4711) + " " + randomClock(r) + pick(r, "+00", "-08", "+05:30") + " BC"
	}
	s := randomDay(r, 294275)
	if !zoned && r.IntN(10) == 0 {
		return s
	}
	s += pick(r, " ", " ", "T") + randomClock(r)
	if zoned || r.IntN(10) == 0 {
		s += randomZone(r)
	}
	return s
}

func randomClock(r *rand.Rand) string {
	s := fmt.Sprintf("%02d:%02d", r.IntN(24), r.IntN(60))
	if r.IntN(10) == 0 {
		return s
	}
	s += fmt.Sprintf(":%02d", r.IntN(60))
	if digits := r.IntN(7); digits > 0 {
		s += fmt.Sprintf(".%0*d", digits, r.IntN([...]int{1, 10, 100, 1000, 10000, 100000, 1000000}[digits]))
	}
	return s
}

func randomZone(r *rand.Rand) string {
	sign := pick(r, "+", "-")
	switch r.IntN(5) {
	case 0:
		return "Z"
	case 1:
		return fmt.Sprintf("%s%02d", sign, r.IntN(16))
	case 2:
		return fmt.Sprintf("%s%02d:%02d:%02d", sign, r.IntN(16), r.IntN(60), r.IntN(60))
	}
	return fmt.Sprintf("%s%02d:%02d", sign, r.IntN(16), r.IntN(60))
}

// strangeText returns what people and fuzzers write: valid texts with a few bytes changed, dates of all
// orders and eras, numbers in the syntax of later versions.
func strangeText(r *rand.Rand, t keyspace.Type) string {
	if r.IntN(3) == 0 {
		return pick(r, strangeTexts(r, t)...)
	}
	b := []byte(randomText(r, t))
	alphabet := "0123456789 -+:.eExXoObB_TZ{}\\tfabnBCAD/,\t\v'infty"
	for range 1 + r.IntN(2) {
		i := r.IntN(len(b) + 1)
		c := alphabet[r.IntN(len(alphabet))]
		switch op := r.IntN(3); {
		case op == 0 || i == len(b):
			b = append(b[:i], append([]byte{c}, b[i:]...)...)
		case op == 1:
			b = append(b[:i], b[i+1:]...)
		default:
			b[i] = c
		}
	}
	return strings.ToValidUTF8(string(b), "?") // anything else the server would refuse as text
}

func strangeTexts(r *rand.Rand, t keyspace.Type) []string {
	switch t {
	case keyspace.Date, keyspace.Timestamp, keyspace.Timestamptz:
		return strangeDates(r)
	case keyspace.Int2, keyspace.Int4, keyspace.Int8, keyspace.Numeric:
		return []string{
			"32767", "32768", "-32768", "-32769", "2147483647", "2147483648", "-2147483648", "-2147483649",
			"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
			"18446744073709551616", "99999999999999999999999", "0x1F", "0b11", "0o17", "1_000", "-0x8000", "",
			" ", "+", "-", ".", "1.", ".5", "1e5", "1e 5", "1e+", "e5", "1.5.5", "--1", "+-1", "1 2", "- 1", "-NaN",
			"1e131071", "1e131072", "-9.99e131071", "1e-16383", "1e-16384", "0e-16384", "0e200000", "1e999999999999",
			"0.0001e4", "infin", "Infinityx", "\u00a01", "１", "00000000000000000000000000001",
			"0." + strings.Repeat("0", 16382) + "1", "0." + strings.Repeat("0", 16383) + "1", "nan 1",
		}
	case keyspace.Bool:
		return []string{"", "o", "tr ue", "truee", "yess", "offf", "2", "10", "ja", " ON ", "\u00a0on", "nO", "fals"}
	case keyspace.UUID:
		return []string{"", "{", "}", "{}", " " + randomUUID(r), randomUUID(r) + " ", "{" + randomUUID(r), randomUUID(r) + "}"}
	case keyspace.Bytea:
		return []string{"", `\`, `\x`, `\x1`, `\x 12`, `\x12 `, `\x1 2`, `\X12`, `\400`, `\377`, `\37`, `\\`, `\\\`, "é", `a\000b`, "\\x12\v"}
	}
	return []string{"", " ", "  x  ", "\t", "a b ", "é "}
}

func strangeDates(r *rand.Rand) []string {
	y, m, d := pick(r, 0, 1+r.IntN(99), 1+r.IntN(4800), 1900+r.IntN(200), r.IntN(6000000)), r.IntN(14), r.IntN(33)
	day := fmt.Sprintf("%04d-%02d-%02d", y, m, d)
	clock := fmt.Sprintf("%02d:%02d:%02d", r.IntN(26), r.IntN(62), r.IntN(62))
	zone := pick(r, "", "Z", "+02", "+2", "-0330", "+05:30", "+16", "-15:59:59", " UTC", " Europe/Berlin", "+02:60", "+1:00")
	era := pick(r, " BC", " BC", " AD", "BC", " bc")
	return []string{
		day, day + era, day + " " + clock + zone, day + "T" + clock + zone, day + " " + clock + zone + era,
		day + " " + clock + ".1234567" + zone, day + " " + clock + "." + zone, day + zone, day + " " + zone,
		day + "  " + clock, day + " 24:00:00", day + " 23:59:60" + zone, day + " 24:00:01", day + "t" + clock, day + " " + clock + " PM",
		fmt.Sprintf("%d-%d-%d", y, m, d), fmt.Sprintf("%02d/%02d/%04d", m, d, y), fmt.Sprintf("%02d.%02d.%04d", d, m, y),
		fmt.Sprintf("%04d%02d%02d", y, m, d), fmt.Sprintf("%03d-%02d-%02d", y%1000, m, d), "Jan 5 2020", "epoch", "J2451187", "2020.123",
		"infinity", "Infinity", "+infinity", "-infinity", "inf", " -infinity ", "", "5874897-12-31", "5874898-01-01", "294276-12-31 23:59:59.999999+00",
		"294277-01-01 00:00:00Z", "4714-11-24 BC", "4714-11-23 BC", "4713-01-01 00:00:00+00 BC", "4712-01-01 00:00:00+15 BC",
		"2020-02-30", "2021-02-29", "1900-02-29", "0000-01-01", "0001-01-01 BC", "0001-02-29 BC", "0005-02-29 BC",
	}
}

// strangeBinary changes a binary value: bytes flipped, added or cut, and for numeric its header and digits.
func strangeBinary(r *rand.Rand, t keyspace.Type, data []byte) []byte {
	b := slices.Clone(data)
	switch r.IntN(6) {
	case 0:
		return b
	case 1:
		return append(b, byte(r.Uint32()))
	case 2:
		return b[:max(0, len(b)-1)]
	}
	if t == keyspace.Numeric && r.IntN(2) == 0 {
		at := 2 * r.IntN(len(b)/2)
		binary.BigEndian.PutUint16(b[at:], uint16(pick(r, 0, 1, 4, 9999, 10000, 0x4000, 0xC000, 0xD000, 0xF000, 0xffff, r.IntN(10000))))
		return b
	}
	for range r.IntN(3) {
		if len(b) > 0 {
			b[r.IntN(len(b))] = pick(r, 0, 0xff, 0x7f, 0x80, byte(r.Uint32()))
		}
	}
	return b
}
