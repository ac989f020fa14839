package sqltext

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Literal is a constant of a statement: the bytes from Start to End of its text, prefix and
// quotes included. A sign before a number is an operator and not part of it.
type Literal struct {
	Start, End int
	Kind       Kind
}

// Value is what the literal of this statement means, as the text that the type's input function
// gets: digits in base ten without underscores, strings without quotes and escapes. Plain
// literals are returned as slices of sql, others are built in scratch (which grows if needed).
// It is false for forms that are not decoded: unicode and bit strings, numbers of another base
// that do not fit 64 bits, and escapes whose meaning depends on the server's encoding.
func (l Literal) Value(sql, scratch []byte) ([]byte, bool) {
	if l.Start < 0 || l.End > len(sql) || l.Start >= l.End {
		return nil, false
	}
	text := sql[l.Start:l.End]
	switch l.Kind {
	case Integer, BigInteger, Decimal:
		return numberValue(text, scratch)
	case String:
		if inner := text[1 : len(text)-1]; bytes.IndexByte(inner, '\'') < 0 {
			return inner, true
		}
		return unquote(text, scratch, false)
	case EscapeString:
		inner := text[bytes.IndexByte(text, '\'')+1 : len(text)-1]
		if bytes.IndexByte(inner, '\'') < 0 && bytes.IndexByte(inner, '\\') < 0 {
			return inner, true
		}
		return unquote(text, scratch, true)
	case DollarString:
		tag := bytes.IndexByte(text[1:], '$') + 2
		return text[tag : len(text)-tag], true
	default:
		return nil, false
	}
}

func numberValue(text, scratch []byte) ([]byte, bool) {
	if len(text) > 2 && text[0] == '0' {
		if base := radix(text[1]); base != 0 {
			v, ok := parseDigits(view(text[2:]), base)
			return strconv.AppendUint(scratch[:0], v, 10), ok
		}
	}
	if bytes.IndexByte(text, '_') < 0 {
		return text, true
	}
	out := scratch[:0]
	for _, c := range text {
		if c != '_' {
			out = append(out, c)
		}
	}
	return out, true
}

// unquote decodes a string that the scanner has accepted, prefix and quotes included.
func unquote(text, scratch []byte, escapes bool) ([]byte, bool) {
	s := scanner{src: view(text)}
	s.pos = strings.IndexByte(s.src, '\'') + 1
	out := scratch[:0]
	for s.pos < len(s.src) {
		c := s.src[s.pos]
		switch {
		case c == '\\' && escapes:
			e := readEscape(s.src[s.pos:])
			if e.size == 0 || e.doubtful {
				return nil, false
			}
			if e.unicode {
				out = utf8.AppendRune(out, e.value)
			} else {
				out = append(out, byte(e.value))
			}
			s.pos += e.size
		case c != '\'':
			out = append(out, c)
			s.pos++
		case s.at(s.pos+1) == '\'':
			out = append(out, '\'')
			s.pos += 2
		default:
			s.pos++
			next, ok := s.continuation()
			if !ok {
				return out, s.pos == len(s.src)
			}
			s.pos = next
		}
	}
	return nil, false
}
