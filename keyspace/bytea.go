package keyspace

// hashByteaText follows byteain: the hex format, else the escape format. The length must be known before the
// first byte is hashed, so both read the text twice.
func hashByteaText(s []byte, seed uint64) (uint64, error) {
	s, next := byteaReader(s)
	length := 0
	for rest := s; ; length++ {
		_, after, state := next(rest)
		if state == byteInvalid {
			return 0, ErrInvalid
		}
		if state == byteEnd {
			break
		}
		rest = after
	}
	h := newByteHasher(length, seed)
	for rest := s; ; {
		b, after, state := next(rest)
		if state == byteEnd {
			return h.sum(), nil
		}
		h.add(b)
		rest = after
	}
}

// byteaReader returns what is to be read and how: the hex format or the escape format.
func byteaReader(s []byte) (rest []byte, next func([]byte) (byte, []byte, byteState)) {
	if len(s) >= 2 && s[0] == '\\' && s[1] == 'x' {
		return s[2:], nextHex
	}
	return s, nextEscaped
}

type byteState uint8

const (
	byteRead byteState = iota
	byteEnd
	byteInvalid
)

// nextHex reads one pair of digits; blanks may stand between pairs, not within one.
func nextHex(s []byte) (byte, []byte, byteState) {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\n' || s[0] == '\t' || s[0] == '\r') {
		s = s[1:]
	}
	if len(s) == 0 {
		return 0, nil, byteEnd
	}
	if len(s) < 2 {
		return 0, nil, byteInvalid
	}
	high, low := hexDigit(s[0]), hexDigit(s[1])
	if high < 0 || low < 0 {
		return 0, nil, byteInvalid
	}
	return byte(high<<4 | low), s[2:], byteRead
}

// nextEscaped reads one byte: itself, \\ for a backslash, or \ooo in octal.
func nextEscaped(s []byte) (byte, []byte, byteState) {
	switch {
	case len(s) == 0:
		return 0, nil, byteEnd
	case s[0] == 0:
		return 0, nil, byteInvalid
	case s[0] != '\\':
		return s[0], s[1:], byteRead
	case len(s) >= 2 && s[1] == '\\':
		return '\\', s[2:], byteRead
	case len(s) >= 4 && isOctal(s[1], '3') && isOctal(s[2], '7') && isOctal(s[3], '7'):
		return (s[1]-'0')<<6 | (s[2]-'0')<<3 | (s[3] - '0'), s[4:], byteRead
	}
	return 0, nil, byteInvalid
}

func isOctal(b, highest byte) bool { return b >= '0' && b <= highest }
