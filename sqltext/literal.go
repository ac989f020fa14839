package sqltext

import (
	"math"
	"strings"
	"unicode/utf8"
)

// Kind is the form of a literal.
type Kind uint8

const (
	Integer       Kind = iota + 1 // fits integer
	BigInteger                    // fits bigint, not integer
	Decimal                       // every other number: numeric
	String                        // '..' without escapes
	EscapeString                  // E'..', or '..' with standard_conforming_strings off
	DollarString                  // $tag$..$tag$
	UnicodeString                 // U&'..'
	BitString                     // B'..' or X'..'
)

// classLetters are what stands for a literal in normalised text. Literals with the same letter
// make the same parse tree, and the same type where a number's size decides it.
const classLetters = "?ildssssb"

func (k Kind) String() string {
	names := [...]string{
		"none", "integer", "big integer", "decimal", "string", "escape string", "dollar string",
		"unicode string", "bit string",
	}
	if int(k) < len(names) {
		return names[k]
	}
	return names[0]
}

// number takes an integer or decimal literal at the position. Junk after it is an error since
// PostgreSQL 15.
func (s *scanner) number(t *token) {
	t.kind = tokLiteral
	start := s.pos
	ok := false
	if base := radix(s.at(start + 1)); base != 0 && s.src[start] == '0' {
		s.pos = s.digits(start+2, base)
		ok = s.pos > start+2
		t.literal = integerKind(s.src[start+2:s.pos], base)
	} else {
		ok = s.decimal(t)
	}
	if !ok || s.junkAfter(start) {
		t.kind = tokBad
	}
}

// decimal takes digits, fraction and exponent; false means an exponent without digits.
func (s *scanner) decimal(t *token) bool {
	start := s.pos
	i := s.digits(start, 10)
	t.literal = Decimal
	switch {
	case s.at(i) == '.' && !(s.at(i+1) == '.' && i > start):
		i++
		if s.is(i, chDigit) {
			i = s.digits(i, 10)
		}
	case s.at(i)|0x20 != 'e':
		t.literal = integerKind(s.src[start:i], 10)
	}
	s.pos = i
	if s.at(i)|0x20 != 'e' {
		return true
	}
	i++
	if c := s.at(i); c == '+' || c == '-' {
		i++
	}
	if !s.is(i, chDigit) {
		return false
	}
	s.pos = s.digits(i, 10)
	return true
}

// junkAfter reports whether an identifier could begin in or right after the number that ends at
// the position and go further than the number does: "1a", and "1_0$" as 1 and _0$.
func (s *scanner) junkAfter(start int) bool {
	if !s.is(s.pos, chCont) {
		return false
	}
	if s.src[s.pos] != '$' {
		return true
	}
	for i := s.pos - 1; i >= start && classes[s.src[i]]&chCont != 0; i-- {
		if classes[s.src[i]]&chStart != 0 {
			return true
		}
	}
	return false
}

func radix(c byte) uint64 {
	switch c | 0x20 {
	case 'x':
		return 16
	case 'o':
		return 8
	case 'b':
		return 2
	}
	return 0
}

// digits skips digits of the base with single underscores between them. After a base prefix the
// first digit may have an underscore before it too.
func (s *scanner) digits(i int, base uint64) int {
	for {
		j := i
		if s.at(j) == '_' {
			j++
		}
		if j >= len(s.src) || digitValue(s.src[j]) >= base {
			return i
		}
		i = j + 1
	}
}

func digitValue(c byte) uint64 {
	switch {
	case '0' <= c && c <= '9':
		return uint64(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return uint64(c|0x20-'a') + 10
	}
	return math.MaxUint64
}

func integerKind(digits string, base uint64) Kind {
	if len(digits) <= 7 {
		return Integer
	}
	v, ok := parseDigits(digits, base)
	switch {
	case !ok || v > math.MaxInt64:
		return Decimal
	case v > math.MaxInt32:
		return BigInteger
	}
	return Integer
}

func parseDigits(digits string, base uint64) (v uint64, ok bool) {
	for i := range len(digits) {
		if digits[i] == '_' {
			continue
		}
		if v > (math.MaxUint64-15)/base {
			return 0, false
		}
		v = v*base + digitValue(digits[i])
	}
	return v, true
}

// str takes a quoted string whose opening quote is at the position, with its continuations on
// later lines.
func (s *scanner) str(t *token, kind Kind) {
	t.kind, t.literal = tokBad, kind
	if kind == UnicodeString && !s.standard {
		return // PostgreSQL: unsafe use of string constant with Unicode escapes
	}
	s.pos++
	for {
		if !s.strBody(t, kind) {
			return
		}
		s.pos++
		if kind != BitString && s.at(s.pos) == '\'' {
			s.pos++
			continue
		}
		next, ok := s.continuation()
		if !ok {
			break
		}
		s.pos = next
	}
	t.kind = tokLiteral
}

// strBody moves to the next quote.
func (s *scanner) strBody(t *token, kind Kind) bool {
	if kind == EscapeString {
		return s.escapedBody(t)
	}
	n := strings.IndexByte(s.src[s.pos:], '\'')
	if n < 0 {
		return false
	}
	if kind == UnicodeString && strings.IndexByte(s.src[s.pos:s.pos+n], '\\') >= 0 {
		t.doubtful = true
	}
	s.pos += n
	return true
}

func (s *scanner) escapedBody(t *token) bool {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case '\'':
			return true
		case '\\':
			e := readEscape(s.src[s.pos:])
			if e.size == 0 {
				return false
			}
			t.doubtful = t.doubtful || e.doubtful
			s.pos += e.size
		default:
			s.pos++
		}
	}
	return false
}

// continuation looks after a closing quote for white space with a newline in it and another
// quote, which goes on with the same literal. It returns the position after that quote.
func (s *scanner) continuation() (int, bool) {
	newline := false
	for i := s.pos; i < len(s.src); i++ {
		switch c := s.src[i]; {
		case c == '\n' || c == '\r':
			newline = true
		case classes[c]&chSpace != 0:
		case c == '-' && s.at(i+1) == '-':
			for i+1 < len(s.src) && s.src[i+1] != '\n' && s.src[i+1] != '\r' {
				i++
			}
		default:
			return i + 1, c == '\'' && newline
		}
	}
	return 0, false
}

// An escape is one backslash sequence of an E'..' string.
type escape struct {
	size     int  // 0: incomplete
	value    rune // a byte, or a code point if unicode
	unicode  bool
	doubtful bool
}

// readEscape reads the sequence at the start of src. Sequences that make bytes outside ASCII,
// zero bytes or surrogates are doubtful: whether they are valid depends on what is around them.
func readEscape(src string) escape {
	if len(src) < 2 {
		return escape{}
	}
	switch c := src[1]; {
	case '0' <= c && c <= '7':
		n, v := 1, rune(0)
		for n < 4 && n < len(src) && '0' <= src[n] && src[n] <= '7' {
			v = v*8 + rune(src[n]-'0')
			n++
		}
		v &= 0xff
		return escape{size: n, value: v, doubtful: v == 0 || v >= 0x80}
	case c == 'x':
		v, n := hexRun(src[2:], 2)
		if n == 0 {
			return escape{size: 2, value: 'x'}
		}
		return escape{size: 2 + n, value: v, doubtful: v == 0 || v >= 0x80}
	case c == 'u' || c == 'U':
		want := 4
		if c == 'U' {
			want = 8
		}
		v, n := hexRun(src[2:], want)
		doubtful := n < want || v <= 0 || v > 0x10ffff || 0xd800 <= v && v < 0xe000
		return escape{size: 2 + n, value: v, unicode: true, doubtful: doubtful}
	default:
		r, size := utf8.DecodeRuneInString(src[1:])
		broken := r == utf8.RuneError && size == 1
		return escape{size: 2, value: rune(plainEscape(c)), doubtful: broken}
	}
}

func plainEscape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'v':
		return '\v'
	}
	return c
}

func hexRun(src string, most int) (v rune, n int) {
	for n < most && n < len(src) {
		d := digitValue(src[n])
		if d > 15 {
			break
		}
		v = v<<4 | rune(d)
		n++
	}
	return v, n
}
