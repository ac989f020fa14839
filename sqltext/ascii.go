package sqltext

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// IsASCII reports text that is the same in every encoding PostgreSQL knows.
func IsASCII[T Text](text T) bool {
	s := view(text)
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// ASCII writes a statement that is in UTF-8 with ASCII characters only, so that it means the same on a
// connection of any client encoding: names and strings get Unicode escapes, comments lose what is not
// ASCII. It is false for a text that does not scan; then there is nothing to be sent.
func ASCII(sql string, standardStrings bool) (string, bool) {
	if IsASCII(sql) {
		return sql, true
	}
	if !utf8.ValidString(sql) || strings.IndexByte(sql, 0) >= 0 {
		return "", false
	}
	var b strings.Builder
	s := scanner{src: sql, standard: standardStrings}
	for {
		from := s.pos
		t := s.next()
		if t.kind == tokBad {
			return "", false
		}
		b.WriteString(plainASCII(sql[from:t.start]))
		if t.kind == tokEnd {
			return b.String(), true
		}
		word := sql[t.start:t.end]
		if IsASCII(word) {
			b.WriteString(word)
			continue
		}
		// A blank, because what is written may begin with a letter where the token did not.
		b.WriteByte(' ')
		b.WriteString(s.escaped(t, word))
	}
}

// escaped writes one token with Unicode escapes.
func (s *scanner) escaped(t token, word string) string {
	switch {
	case t.kind == tokWord:
		return `U&"` + nameEscapes(string(appendLower(nil, word)), '\\') + `"`
	case t.kind == tokQuoted:
		return `U&"` + nameEscapes(word[1:len(word)-1], '\\') + `"`
	case t.kind == tokUnicode || t.literal == UnicodeString:
		return unicodeEscapes(word, s.escapeCharacter())
	case t.literal == EscapeString:
		return "E" + stringEscapes(word[strings.IndexByte(word, '\''):])
	case t.literal == String || t.literal == DollarString:
		value, ok := Literal{End: len(word), Kind: t.literal}.Value([]byte(word), nil)
		if ok {
			quoted := strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(string(value))
			return "E'" + stringEscapes(quoted) + "'"
		}
	}
	return plainASCII(word)
}

// escapeCharacter is what begins an escape in the Unicode token before the position.
func (s *scanner) escapeCharacter() byte {
	if !s.uescapeFollows() {
		return '\\'
	}
	ahead := *s
	ahead.next()
	if t := ahead.next(); t.kind == tokLiteral && t.end-t.start == 3 {
		return s.src[t.start+1]
	}
	return '\\'
}

// nameEscapes escapes the inside of a name that had no escapes.
func nameEscapes(name string, escape byte) string {
	return unicodeEscapes(strings.ReplaceAll(name, string(escape), string([]byte{escape, escape})), escape)
}

// unicodeEscapes writes what is not ASCII as in U&'..' and U&"..".
func unicodeEscapes(text string, escape byte) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			b.WriteByte(byte(r))
		case r > 0xffff:
			fmt.Fprintf(&b, "%c+%06X", escape, r)
		default:
			fmt.Fprintf(&b, "%c%04X", escape, r)
		}
	}
	return b.String()
}

// stringEscapes writes what is not ASCII as in E'..'. A backslash before such a character means
// the character itself.
func stringEscapes(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		if text[i] == '\\' && i+1 < len(text) {
			if text[i+1] < utf8.RuneSelf {
				b.WriteString(text[i : i+2])
				i += 2
				continue
			}
			i++
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r < utf8.RuneSelf:
			b.WriteByte(byte(r))
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			fmt.Fprintf(&b, `\u%04X`, r)
		}
		i += size
	}
	return b.String()
}

// plainASCII replaces what no escape can write: the text of comments.
func plainASCII(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return '?'
		}
		return r
	}, text)
}
