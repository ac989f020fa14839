package sqltext

import "strings"

// A Span is one statement of a text: the bytes from Start to End, without the semicolon, with
// the white space and comments around it. It is what PostgreSQL 17 records as the statement's
// location and length.
type Span struct{ Start, End int }

// Split finds the statements of sql; empty ones are left out. It returns false for text that does
// not scan and for function bodies of the form BEGIN ATOMIC .. END, whose semicolons only the
// parser can tell apart. Text that scans but does not parse may be split anywhere.
func Split[T Text](sql T, standardStrings bool) ([]Span, bool) {
	src := view(sql)
	if strings.IndexByte(src, 0) >= 0 {
		return nil, false
	}
	s := scanner{src: src, standard: standardStrings}
	var spans []Span
	var start, depth int
	empty, begin := true, false
	for {
		t := s.next()
		word := src[t.start:t.end]
		switch t.kind {
		case tokEnd:
			if !empty {
				spans = append(spans, Span{start, len(src)})
			}
			return spans, true
		case tokBad:
			return nil, false
		case tokWord:
			if begin && strings.EqualFold(word, "atomic") {
				return nil, false
			}
		case tokSymbol:
			switch word {
			case "(":
				depth++ // CREATE RULE .. DO (a; b)
			case ")":
				depth--
			case ";":
				if depth > 0 {
					break
				}
				if !empty {
					spans = append(spans, Span{start, t.start})
				}
				start, depth, empty, begin = t.end, 0, true, false
				continue
			}
		}
		empty = false
		begin = t.kind == tokWord && strings.EqualFold(word, "begin")
	}
}

// FirstKeyword is the keyword that sql begins with, after white space and comments, in upper
// case: BEGIN, SELECT, SET... It is empty when no statement begins that way, for example for an
// opening parenthesis.
func FirstKeyword[T Text](sql T) string {
	s := scanner{src: view(sql), standard: true}
	t := s.next()
	const longest = len("DEALLOCATE")
	if t.kind != tokWord || t.end-t.start > longest {
		return ""
	}
	var upper [longest]byte
	n := copy(upper[:], s.src[t.start:t.end])
	for i, c := range upper[:n] {
		if 'a' <= c && c <= 'z' {
			upper[i] = c &^ 0x20
		}
	}
	return statementKeyword(upper[:n])
}
