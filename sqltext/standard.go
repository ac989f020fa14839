package sqltext

import (
	"bytes"
	"strings"
)

// Standard writes a text from a session with standard_conforming_strings = off so that it means the same wherever it is read: strings
// with a backslash get the E that says so. What does not scan stays as it is; nobody can read it either way.
func Standard(sql []byte) []byte {
	if bytes.IndexByte(sql, '\\') < 0 {
		return sql
	}
	var out []byte
	var last token
	s := scanner{src: string(sql)}
	for {
		from := s.pos
		t := s.next()
		if t.kind == tokBad {
			return sql
		}
		if t.kind == tokEnd {
			return append(out, s.src[from:]...)
		}
		out = append(out, s.src[from:t.start]...)
		word := s.src[t.start:t.end]
		if t.kind == tokLiteral && word[0] == '\'' && strings.IndexByte(word, '\\') >= 0 {
			if last.kind == tokWord && last.end == t.start && strings.EqualFold(s.src[last.start:last.end], "n") {
				out = append(out[:len(out)-1], "pg_catalog.bpchar"...) // N'...'
			}
			out = append(out, " E"...) // a blank, because a name may stand right before it
		}
		out, last = append(out, word...), t
	}
}
