package keyspace

import "encoding/binary"

// hash_numeric_extended hashes a numeric's base-10000 digits without the zero digits at either end, and its
// weight (the power of 10000 of the first digit). Sign and scale have no part in it, so 1.0 and 1.00 agree.

const (
	hashNumericSpecial = uint64(HashSeed)                  // NaN and the infinities
	hashNumericZero    = ^uint64(0) + uint64(HashSeed)     // seed - 1
	maxNumericScale    = 16383                             // digits after the point that PostgreSQL stores
	maxNumericPower    = 4*32767 + 3                       // power of ten of the first digit
	maxNumericExponent = maxNumericPower + maxNumericScale // beyond it nothing is stored but zero
)

// digitHasher hashes base-10000 digits as the server holds them: 16 bits each, little-endian.
type digitHasher struct{ bytes byteHasher }

func newDigitHasher(digits int) digitHasher { return digitHasher{newByteHasher(2 * digits)} }

func (h *digitHasher) add(digit uint16) {
	h.bytes.add(byte(digit))
	h.bytes.add(byte(digit >> 8))
}

func (h *digitHasher) sum(weight int) uint64 { return h.bytes.sum() ^ uint64(int64(weight)) }

func hashNumericInt(v int64) uint64 {
	u := uint64(v)
	if v < 0 {
		u = -u
	}
	if u == 0 {
		return hashNumericZero
	}
	const base = 10000
	skipped := 0
	for u%base == 0 {
		u /= base
		skipped++
	}
	var digits [5]uint16 // the lowest first
	n := 0
	for ; u > 0; u /= base {
		digits[n] = uint16(u % base)
		n++
	}
	h := newDigitHasher(n)
	for i := n - 1; i >= 0; i-- {
		h.add(digits[i])
	}
	return h.sum(n - 1 + skipped)
}

// hashNumericBinary follows numeric_recv.
func hashNumericBinary(data []byte) (uint64, error) {
	const header = 8
	if len(data) < header {
		return 0, ErrInvalid
	}
	count := int(binary.BigEndian.Uint16(data[0:]))
	weight := int(int16(binary.BigEndian.Uint16(data[2:])))
	sign := binary.BigEndian.Uint16(data[4:])
	scale := int(binary.BigEndian.Uint16(data[6:]))
	digits := data[header:]
	if len(digits) != 2*count || scale > maxNumericScale {
		return 0, ErrInvalid
	}
	for i := 0; i < len(digits); i += 2 {
		if binary.BigEndian.Uint16(digits[i:]) > 9999 {
			return 0, ErrInvalid
		}
	}
	switch sign {
	case 0x0000, 0x4000:
	case 0xC000, 0xD000, 0xF000:
		return hashNumericSpecial, nil
	default:
		return 0, ErrInvalid
	}
	for len(digits) > 0 && digits[0] == 0 && digits[1] == 0 {
		digits = digits[2:]
		weight--
	}
	for len(digits) > 0 && digits[len(digits)-1] == 0 && digits[len(digits)-2] == 0 {
		digits = digits[:len(digits)-2]
	}
	if len(digits) == 0 {
		return hashNumericZero, nil
	}
	lastWeight := weight - len(digits)/2 + 1
	if hidesDigits(binary.BigEndian.Uint16(digits[len(digits)-2:]), lastWeight, scale) {
		return 0, ErrNotProven
	}
	h := newDigitHasher(len(digits) / 2)
	for i := 0; i < len(digits); i += 2 {
		h.add(binary.BigEndian.Uint16(digits[i:]))
	}
	return h.sum(weight), nil
}

// hidesDigits reports whether the last base-10000 digit, which is not zero, reaches beyond the scale.
// numeric_recv cuts such digits off; no sender makes them.
func hidesDigits(digit uint16, weight, scale int) bool {
	decimals := -4 * weight
	for digit%10 == 0 {
		digit /= 10
		decimals--
	}
	return decimals > scale
}

// hashNumericText follows numeric_in of PostgreSQL 15.
func hashNumericText(text []byte) (uint64, error) {
	s := trimSpace(text)
	if isNumericSpecial(s) {
		return hashNumericSpecial, nil
	}
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		s = s[1:]
	}
	d, rest, ok := scanDecimal(s)
	if !ok {
		return 0, malformedNumber(text)
	}
	exponent, err := parseExponent(rest)
	if err != nil {
		if err == ErrInvalid {
			err = malformedNumber(text)
		}
		return 0, err
	}
	if d.decimals-exponent > maxNumericScale {
		return 0, ErrNotProven
	}
	if d.significant == nil {
		return hashNumericZero, nil
	}
	if d.firstPower+exponent > maxNumericPower {
		return 0, ErrNotProven
	}
	return d.hash(exponent), nil
}

func isNumericSpecial(s []byte) bool {
	if equalFold(s, "nan") {
		return true
	}
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		s = s[1:]
	}
	return equalFold(s, "infinity") || equalFold(s, "inf")
}

// decimal is a number as written, without its sign and exponent.
type decimal struct {
	significant []byte // from the first to the last digit that is not zero, the point included; nil for zero
	firstPower  int    // the power of ten of the first significant digit
	lastPower   int    // and of the last
	decimals    int    // digits after the point
}

// scanDecimal reads digits with at most one point; rest is what follows.
func scanDecimal(s []byte) (d decimal, rest []byte, ok bool) {
	first, last, point, digits, end := -1, -1, -1, 0, len(s)
	for i, b := range s {
		if b == '.' && point < 0 {
			point = digits
			continue
		}
		if !isDigit(b) {
			end = i
			break
		}
		if b != '0' {
			last = i
			if first < 0 {
				first = i
				d.firstPower = -digits
			}
			d.lastPower = -digits
		}
		digits++
	}
	if digits == 0 {
		return decimal{}, nil, false
	}
	integers := digits
	if point >= 0 {
		integers = point
	}
	d.decimals = digits - integers
	d.firstPower += integers - 1
	d.lastPower += integers - 1
	if first >= 0 {
		d.significant = s[first : last+1]
	}
	return d, s[end:], true
}

// parseExponent reads e with a number up to the end, or nothing.
func parseExponent(s []byte) (int, error) {
	if len(s) == 0 {
		return 0, nil
	}
	if s[0] != 'e' && s[0] != 'E' {
		return 0, ErrInvalid
	}
	s = s[1:]
	if len(s) > 0 && isSpace(s[0]) {
		return 0, ErrNotProven // PostgreSQL 15 reads over blanks here, later ones do not
	}
	negative := false
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		negative = s[0] == '-'
		s = s[1:]
	}
	if len(s) == 0 {
		return 0, ErrInvalid
	}
	v, large := 0, false
	for _, b := range s {
		if !isDigit(b) {
			return 0, ErrInvalid
		}
		if v = v*10 + int(b-'0'); v > maxNumericExponent {
			v, large = maxNumericExponent, true
		}
	}
	if large {
		return 0, ErrNotProven
	}
	if negative {
		return -v, nil
	}
	return v, nil
}

// hash groups the decimal digits into base-10000 digits on the way.
func (d decimal) hash(exponent int) uint64 {
	power, last := d.firstPower+exponent, d.lastPower+exponent
	weight := power >> 2 // rounds down, also below zero
	h := newDigitHasher(weight - last>>2 + 1)
	group := uint16(0)
	for _, b := range d.significant {
		if b == '.' {
			continue
		}
		group = group*10 + uint16(b-'0')
		if power&3 == 0 {
			h.add(group)
			group = 0
		}
		power--
	}
	if last&3 != 0 {
		for ; power&3 != 3; power-- {
			group *= 10
		}
		h.add(group)
	}
	return h.sum(weight)
}
