package keyspace

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// orderedText returns the value of an ordered encoding, or of what After makes of one, in a text that PostgreSQL reads
// the same way under all settings.
func orderedText(t Type, b []byte) (string, bool) {
	p := piece{Component: Component{Method: Range}, typ: t}
	if size := p.fixedSize(); size > 0 {
		if len(b) != size {
			return "", false
		}
		return fixedText(t, b[:size-1])
	}
	if t == Numeric {
		size, end := numericEnd(b)
		if end == endOpen || size != len(b) {
			return "", false
		}
		return numericText(b), true
	}
	size, end := stringEnd(b)
	if end == endOpen || size != len(b) {
		return "", false
	}
	s := strings.ReplaceAll(string(b[:size-2]), "\x00\xff", "\x00")
	if t == Bytea {
		return `\x` + hex.EncodeToString([]byte(s)), true
	}
	return s, true
}

func fixedText(t Type, b []byte) (string, bool) {
	switch t {
	case Int8:
		return signed(binary.BigEndian.Uint64(b)), true
	case Date:
		return dateText(int64(int32(binary.BigEndian.Uint32(b) ^ 1<<31))), true
	case Timestamp, Timestamptz:
		return timestampText(int64(binary.BigEndian.Uint64(b)^1<<63), t == Timestamptz), true
	case Bool:
		return strconv.FormatBool(b[0] != 0), true
	case UUID:
		return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), true
	}
	return "", false
}

// civil is the reverse of daysSince2000: the date, and its era as PostgreSQL writes it at the end of a text.
func civil(days int64) (date, era string) {
	// Years begin in March, as in daysSince2000, and are counted in periods of 400 years.
	const period = 146097
	days += 730425 // since 0000-03-01
	periods := days / period
	if days %= period; days < 0 {
		days += period
		periods--
	}
	y := (days - days/1460 + days/36524 - days/(period-1)) / 365
	days -= 365*y + y/4 - y/100
	m := (5*days + 2) / 153
	days -= (153*m + 2) / 5
	if m += 3; m > 12 {
		m -= 12
		y++
	}
	y += 400 * periods
	if y <= 0 {
		y, era = 1-y, " BC"
	}
	return fmt.Sprintf("%04d-%02d-%02d", y, m, days+1), era
}

func dateText(days int64) string {
	switch days {
	case math.MaxInt32:
		return "infinity"
	case math.MinInt32:
		return "-infinity"
	}
	date, era := civil(days)
	return date + era
}

func timestampText(v int64, zoned bool) string {
	switch v {
	case math.MaxInt64:
		return "infinity"
	case math.MinInt64:
		return "-infinity"
	}
	days, clock := v/day, v%day
	if clock < 0 {
		days--
		clock += day
	}
	date, era := civil(days)
	s := fmt.Sprintf("%s %02d:%02d:%02d", date, clock/hour, clock%hour/minute, clock%minute/second)
	if fraction := clock % second; fraction != 0 {
		s += strings.TrimRight(fmt.Sprintf(".%06d", fraction), "0")
	}
	if zoned {
		s += "+00"
	}
	return s + era
}

func numericText(b []byte) string {
	sign, flip := "", uint16(0)
	switch b[0] {
	case orderedMinusInfinity:
		return "-Infinity"
	case orderedZero:
		return "0"
	case orderedInfinity:
		return "Infinity"
	case orderedNaN:
		return "NaN"
	case orderedNegative:
		sign, flip = "-", 0xffff
	}
	weight := int(int16(binary.BigEndian.Uint16(b[1:]) ^ 1<<15 ^ flip))
	var digits strings.Builder
	for i := 3; i < len(b)-2; i += 2 {
		fmt.Fprintf(&digits, "%04d", binary.BigEndian.Uint16(b[i:])^flip-2)
	}
	s := digits.String()
	power := 4*weight + 4 // of ten, of what stands before the first digit
	s = strings.TrimRight(s, "0")
	trimmed := strings.TrimLeft(s, "0")
	power -= len(s) - len(trimmed)
	s = trimmed
	const longest = 40 // what is longer is written with an exponent
	switch {
	case power > longest || power < -longest:
		if len(s) > 1 {
			s = s[:1] + "." + s[1:]
		}
		return sign + s + "e" + strconv.Itoa(power-1)
	case power <= 0:
		return sign + "0." + strings.Repeat("0", -power) + s
	case power >= len(s):
		return sign + s + strings.Repeat("0", power-len(s))
	}
	return sign + s[:power] + "." + s[power:]
}
