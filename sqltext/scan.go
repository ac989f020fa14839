// Package sqltext reads SQL text the way PostgreSQL's lexer does, so that the router can
// recognise a statement it has planned before without parsing it again.
//
// The rules are those of PostgreSQL 17, which accepts everything that 15 and 16 accept. Text must
// be in an encoding whose multi-byte characters never contain ASCII bytes: UTF8 and every other
// server encoding, but not the client-only ones (SJIS, BIG5, GBK, UHC, GB18030, JOHAB).
//
// Where the scanner is not sure, it says so, and the caller asks PostgreSQL's own parser.
package sqltext

import (
	"strings"
	"unsafe"
)

// Text is SQL as it comes from a client (bytes) or from a program (string).
type Text interface{ ~string | ~[]byte }

// view reads either kind of text as a string without copying: a slice header begins with a
// string header. The result must not outlive the call it is made for.
func view[T Text](sql T) string { return *(*string)(unsafe.Pointer(&sql)) }

type tokenKind uint8

const (
	tokEnd     tokenKind = iota
	tokBad               // PostgreSQL's lexer or grammar would reject the text here
	tokWord              // identifier or keyword without quotes
	tokQuoted            // "identifier"
	tokUnicode           // U&"identifier"
	tokParam             // $1
	tokSymbol            // punctuation, or a run of one or more operators
	tokLiteral
)

// A token is what lies at src[start:end]. blank says that white space or comments came before it.
type token struct {
	kind       tokenKind
	literal    Kind // of a tokLiteral
	blank      bool
	doubtful   bool // a string whose escapes PostgreSQL may reject or decode by other rules
	start, end int
}

type scanner struct {
	src      string
	pos      int
	standard bool // standard_conforming_strings
}

// Character classes, as in PostgreSQL's scan.l.
const (
	chSpace uint8 = 1 << iota
	chStart       // begins an identifier
	chCont        // continues an identifier
	chDigit
	chOperator
	chPunct // always a token of its own: , ( ) [ ] ; :
)

const maxIdentifier = 64 // NAMEDATALEN: longer operators are errors

var (
	classes = buildClasses()
	folded  = buildFolded()
)

func buildClasses() (table [256]uint8) {
	for c := range table {
		switch b := byte(c); {
		case b == '_' || b >= 0x80 || 'a' <= b|0x20 && b|0x20 <= 'z':
			table[c] = chStart | chCont
		case '0' <= b && b <= '9':
			table[c] = chDigit | chCont
		case b == '$':
			table[c] = chCont
		case strings.IndexByte(" \t\n\r\f\v", b) >= 0:
			table[c] = chSpace
		case strings.IndexByte("~!@#^&|`?+-*/%<>=", b) >= 0:
			table[c] = chOperator
		case strings.IndexByte(",()[];:", b) >= 0:
			table[c] = chPunct
		}
	}
	return table
}

// buildFolded maps ASCII letters to lower case, as PostgreSQL does for names in UTF8.
func buildFolded() (table [256]byte) {
	for c := range table {
		table[c] = byte(c)
		if 'A' <= c && c <= 'Z' {
			table[c] = byte(c) | 0x20
		}
	}
	return table
}

// is reports whether the byte at i belongs to one of the classes; the end of the text does not.
func (s *scanner) is(i int, class uint8) bool {
	return i < len(s.src) && classes[s.src[i]]&class != 0
}

func (s *scanner) at(i int) byte {
	if i < len(s.src) {
		return s.src[i]
	}
	return 0
}

// next takes the next token. After tokEnd or tokBad it must not be called again.
func (s *scanner) next() token {
	t := token{start: s.pos, end: s.pos}
	if s.pos < len(s.src) {
		if c := s.src[s.pos]; classes[c]&chSpace != 0 || c == '-' || c == '/' {
			if !s.skipBlank() {
				t.kind = tokBad
				return t
			}
			t.blank = s.pos > t.start
			t.start, t.end = s.pos, s.pos
		}
	}
	if s.pos >= len(s.src) {
		return t
	}
	c := s.src[s.pos]
	switch class := classes[c]; {
	case class&chStart != 0:
		s.word(&t)
	case class&chDigit != 0:
		s.number(&t)
	case class&chOperator != 0:
		s.operators(&t)
	case class&chPunct != 0:
		s.pos++
		t.kind = tokSymbol
	default:
		s.special(&t, c)
	}
	t.end = s.pos
	return t
}

func (s *scanner) special(t *token, c byte) {
	switch {
	case c == '\'':
		kind := String
		if !s.standard {
			kind = EscapeString
		}
		s.str(t, kind)
	case c == '"':
		t.kind = tokQuoted
		s.quotedName(t)
	case c == '$':
		s.dollar(t)
	case c == '.' && s.is(s.pos+1, chDigit):
		s.number(t)
	case c == '.':
		s.pos++
		if s.at(s.pos) == '.' {
			s.pos++
		}
		t.kind = tokSymbol
	default:
		t.kind = tokBad
	}
}

// skipBlank skips white space and comments; false means an unterminated comment.
func (s *scanner) skipBlank() bool {
	for s.pos < len(s.src) {
		c := s.src[s.pos]
		switch {
		case classes[c]&chSpace != 0:
			s.pos++
		case c == '-' && s.at(s.pos+1) == '-':
			s.skipLine()
		case c == '/' && s.at(s.pos+1) == '*':
			if !s.skipComment() {
				return false
			}
		default:
			return true
		}
	}
	return true
}

func (s *scanner) skipLine() {
	for s.pos < len(s.src) && s.src[s.pos] != '\n' && s.src[s.pos] != '\r' {
		s.pos++
	}
}

func (s *scanner) skipComment() bool {
	depth := 0
	for i := s.pos; i+1 < len(s.src); {
		switch {
		case s.src[i] == '/' && s.src[i+1] == '*':
			depth++
			i += 2
		case s.src[i] == '*' && s.src[i+1] == '/':
			depth--
			i += 2
			if depth == 0 {
				s.pos = i
				return true
			}
		default:
			i++
		}
	}
	return false
}

// word takes an identifier or keyword, or the literal that its first letter introduces.
func (s *scanner) word(t *token) {
	if s.at(s.pos+1) == '\'' {
		switch s.src[s.pos] | 0x20 {
		case 'e':
			s.pos++
			s.str(t, EscapeString)
			return
		case 'b', 'x':
			s.pos++
			s.str(t, BitString)
			return
		}
		// N'..' is the keyword NCHAR and a string: two tokens.
	}
	if s.at(s.pos+1) == '&' && s.src[s.pos]|0x20 == 'u' {
		switch s.at(s.pos + 2) {
		case '\'':
			s.pos += 2
			s.str(t, UnicodeString)
			return
		case '"':
			s.pos += 2
			t.kind = tokUnicode
			s.quotedName(t)
			return
		}
	}
	t.kind = tokWord
	i := s.pos + 1
	for i < len(s.src) && classes[s.src[i]]&chCont != 0 {
		i++
	}
	s.pos = i
}

// quotedName takes a delimited identifier, which may not be empty.
func (s *scanner) quotedName(t *token) {
	open := s.pos
	for {
		s.pos++
		i := strings.IndexByte(s.src[s.pos:], '"')
		if i < 0 {
			t.kind = tokBad
			return
		}
		s.pos += i + 1
		if s.at(s.pos) != '"' {
			break
		}
	}
	if s.pos == open+2 {
		t.kind = tokBad
	}
}

// operators takes a run of operator characters up to a comment. PostgreSQL may see several
// operators in it (trailing + and - are split off); nobody here needs to know.
func (s *scanner) operators(t *token) {
	t.kind = tokSymbol
	i := s.pos
	for s.is(i, chOperator) {
		if n := s.at(i + 1); s.src[i] == '-' && n == '-' || s.src[i] == '/' && n == '*' {
			break
		}
		i++
	}
	if i-s.pos >= maxIdentifier {
		t.kind = tokBad
	}
	s.pos = i
}

// dollar takes $1 or $tag$..$tag$.
func (s *scanner) dollar(t *token) {
	i := s.pos + 1
	if s.is(i, chDigit) {
		for s.is(i, chDigit) {
			i++
		}
		t.kind = tokParam
		if s.is(i, chStart) {
			t.kind = tokBad
		}
		s.pos = i
		return
	}
	t.kind = tokBad
	if s.is(i, chStart) {
		for s.is(i, chStart|chDigit) {
			i++
		}
	}
	if s.at(i) != '$' {
		return
	}
	tag := s.src[s.pos : i+1]
	n := strings.Index(s.src[i+1:], tag)
	if n < 0 {
		return
	}
	t.kind, t.literal = tokLiteral, DollarString
	s.pos = i + 1 + n + len(tag)
}
