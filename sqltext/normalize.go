package sqltext

import "strings"

// literalMark begins a literal's place in normalised text. It is no part of any SQL outside
// quotes, so that a place cannot be mistaken for what a client wrote.
const literalMark = 0x01

// Normalized is a statement without its literals. It is meant to be used again and again, so
// that its buffers are.
type Normalized struct {
	// Text has a mark and a class letter for each literal, one blank where white space or
	// comments were, and ASCII letters outside quotes in lower case.
	Text []byte
	// Literals are the places that Text stands for, in order.
	Literals []Literal
}

// Normalize takes the literals out of sql. Two texts with the same Normalized.Text have the same
// parse tree up to locations and the values of their literals. It returns false when it cannot
// promise that, for example because the text does not end well; then dst is of no use and the
// caller gives the text to the parser.
//
// Not every literal is an A_Const of the tree: type modifiers, counts of FETCH, names of
// prepared transactions and the like sit in other nodes. A caller that keeps something made from
// such a value must compare the value too. The A_Const of a negative number is located at its
// sign, not at the literal.
func Normalize[T Text](dst *Normalized, sql T, standardStrings bool) bool {
	return dst.scan(view(sql), standardStrings)
}

// scan takes the most usual tokens itself, which makes it twice as fast as asking the scanner for
// each of them, and leaves the others to the scanner.
func (dst *Normalized) scan(src string, standardStrings bool) bool {
	out, literals := dst.Text[:0], dst.Literals[:0]
	s := scanner{src: src, standard: standardStrings}
	ok := strings.IndexByte(src, 0) < 0
	blank := false
	for ok && s.pos < len(src) {
		c := src[s.pos]
		class := classes[c]
		if class&chSpace != 0 {
			blank = len(out) > 0
			s.pos++
			continue
		}
		if class&(chStart|chDigit|chPunct) == 0 {
			out, literals, ok = s.rare(out, literals, blank)
			blank = false
			continue
		}
		if blank {
			out = append(out, ' ')
			blank = false
		}
		switch {
		case class&chPunct != 0:
			out = append(out, c)
			s.pos++
		case class&chStart != 0:
			i := s.plainWord()
			if i == 0 {
				out, literals, ok = s.rare(out, literals, false)
				continue
			}
			out = appendLower(out, src[s.pos:i])
			s.pos = i
		default:
			i := s.plainInteger()
			if i == 0 || inFloat(out) {
				out, literals, ok = s.rare(out, literals, false)
				continue
			}
			out = append(out, literalMark, classLetters[Integer])
			literals = append(literals, Literal{Start: s.pos, End: i, Kind: Integer})
			s.pos = i
		}
	}
	dst.Text, dst.Literals = out, literals
	return ok
}

// plainWord returns the end of the word at the position, or 0 if it may begin a literal.
func (s *scanner) plainWord() int {
	i := s.pos + 1
	for i < len(s.src) && classes[s.src[i]]&chCont != 0 {
		i++
	}
	if i == s.pos+1 && (s.at(i) == '\'' || s.at(i) == '&') {
		return 0
	}
	return i
}

// plainInteger returns the end of a short run of digits that is certainly a whole integer
// literal, else 0.
func (s *scanner) plainInteger() int {
	i := s.pos + 1
	for i < len(s.src) && classes[s.src[i]]&chDigit != 0 {
		i++
	}
	if i > s.pos+9 || s.is(i, chCont) || s.at(i) == '.' {
		return 0
	}
	return i
}

// rare takes one token of any kind and appends what stands for it.
func (s *scanner) rare(out []byte, literals []Literal, blank bool) ([]byte, []Literal, bool) {
	t := s.next()
	word := s.src[t.start:t.end]
	if t.kind == tokEnd {
		return out, literals, true
	}
	if (blank || t.blank) && len(out) > 0 {
		out = append(out, ' ')
	}
	switch t.kind {
	case tokWord:
		out = appendLower(out, word)
	case tokUnicode:
		out = append(out, 'u')
		out = append(out, word[1:]...)
		return out, literals, !s.uescapeFollows()
	case tokQuoted, tokParam, tokSymbol:
		out = append(out, word...)
	case tokLiteral:
		if t.doubtful || t.literal == UnicodeString && s.uescapeFollows() {
			return out, literals, false
		}
		if t.literal == Integer && inFloat(out) {
			return append(out, word...), literals, true
		}
		out = append(out, literalMark, classLetters[t.literal])
		literals = append(literals, Literal{Start: t.start, End: t.end, Kind: t.literal})
	default:
		return out, literals, false
	}
	return out, literals, true
}

// uescapeFollows reports whether the next token is UESCAPE, whose string changes how the token
// before it is read.
func (s *scanner) uescapeFollows() bool {
	ahead := *s
	t := ahead.next()
	return t.kind == tokWord && strings.EqualFold(s.src[t.start:t.end], "uescape")
}

func appendLower(out []byte, word string) []byte {
	for i := range len(word) {
		out = append(out, folded[word[i]])
	}
	return out
}

// inFloat reports whether text ends in "float(": the number that follows decides between real
// and double precision, in the parser, so that it is part of the statement's shape.
func inFloat(text []byte) bool {
	n := len(text)
	if n > 0 && text[n-1] == ' ' {
		n--
	}
	if n == 0 || text[n-1] != '(' {
		return false
	}
	n--
	if n > 0 && text[n-1] == ' ' {
		n--
	}
	const name = "float"
	if n < len(name) || string(text[n-len(name):n]) != name {
		return false
	}
	n -= len(name)
	return n == 0 || classes[text[n-1]]&chCont == 0
}
