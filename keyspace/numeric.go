package keyspace

import "encoding/binary"

const (
	maxNumericScale    = 16383                             // digits after the point that PostgreSQL stores
	maxNumericPower    = 4*32767 + 3                       // power of ten of the first digit
	maxNumericExponent = maxNumericPower + maxNumericScale // beyond it nothing is stored but zero
)

type numericClass uint8

const (
	numericFinite numericClass = iota
	numericMinusInfinity
	numericInfinity
	numericNaN
)

// numeric is a number as PostgreSQL holds it: base-10000 digits without the zero digits at either end, and the
// weight, which is the power of 10000 of the first one. Scale has no part in it, so 1.0 and 1.00 agree.
type numeric struct {
	class    numericClass
	negative bool
	count    int // of digits; zero has none
	weight   int

	// Where the digits are: in one of these.
	whole    [5]uint16 // of an integer, the lowest first
	binary   []byte
	decimal  decimal
	exponent int
}

// hash is hash_numeric_extended: of the digits as the server holds them, 16 bits each, little-endian, and of the
// weight. The sign has no part in it.
func (n *numeric) hash(seed uint64) uint64 {
	switch {
	case n.class != numericFinite:
		return seed
	case n.count == 0:
		return seed - 1
	}
	h := newByteHasher(2*n.count, seed)
	n.each(func(digit uint16) {
		h.add(byte(digit))
		h.add(byte(digit >> 8))
	})
	return h.sum() ^ uint64(int64(n.weight))
}

// each calls add with the digits, the highest first.
func (n *numeric) each(add func(digit uint16)) {
	switch {
	case n.binary != nil:
		for i := 0; i < len(n.binary); i += 2 {
			add(binary.BigEndian.Uint16(n.binary[i:]))
		}
	case n.decimal.significant != nil:
		n.decimal.each(n.exponent, add)
	default:
		for i := n.count - 1; i >= 0; i-- {
			add(n.whole[i])
		}
	}
}

func numericOfInt(v int64) (n numeric) {
	n.negative = v < 0
	u := uint64(v)
	if n.negative {
		u = -u
	}
	if u == 0 {
		return n
	}
	const base = 10000
	for u%base == 0 {
		u /= base
		n.weight++
	}
	for ; u > 0; u /= base {
		n.whole[n.count] = uint16(u % base)
		n.count++
	}
	n.weight += n.count - 1
	return n
}

// parseNumericBinary follows numeric_recv.
func parseNumericBinary(data []byte) (n numeric, err error) {
	const header = 8
	if len(data) < header {
		return n, ErrInvalid
	}
	count := int(binary.BigEndian.Uint16(data[0:]))
	n.weight = int(int16(binary.BigEndian.Uint16(data[2:])))
	sign := binary.BigEndian.Uint16(data[4:])
	scale := int(binary.BigEndian.Uint16(data[6:]))
	digits := data[header:]
	if len(digits) != 2*count || scale > maxNumericScale {
		return n, ErrInvalid
	}
	for i := 0; i < len(digits); i += 2 {
		if binary.BigEndian.Uint16(digits[i:]) > 9999 {
			return n, ErrInvalid
		}
	}
	switch sign {
	case 0x0000:
	case 0x4000:
		n.negative = true
	case 0xC000:
		return numeric{class: numericNaN}, nil
	case 0xD000:
		return numeric{class: numericInfinity}, nil
	case 0xF000:
		return numeric{class: numericMinusInfinity}, nil
	default:
		return n, ErrInvalid
	}
	for len(digits) > 0 && digits[0] == 0 && digits[1] == 0 {
		digits = digits[2:]
		n.weight--
	}
	for len(digits) > 0 && digits[len(digits)-1] == 0 && digits[len(digits)-2] == 0 {
		digits = digits[:len(digits)-2]
	}
	if len(digits) == 0 {
		return numeric{}, nil
	}
	n.binary, n.count = digits, len(digits)/2
	if hidesDigits(binary.BigEndian.Uint16(digits[len(digits)-2:]), n.weight-n.count+1, scale) {
		return n, ErrNotProven
	}
	return n, nil
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

// parseNumericText follows numeric_in of PostgreSQL 15.
func parseNumericText(text []byte) (n numeric, err error) {
	s := trimSpace(text)
	if class, ok := numericSpecial(s); ok {
		return numeric{class: class}, nil
	}
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		n.negative = s[0] == '-'
		s = s[1:]
	}
	d, rest, ok := scanDecimal(s)
	if !ok {
		return n, malformedNumber(text)
	}
	exponent, err := parseExponent(rest)
	if err != nil {
		if err == ErrInvalid {
			err = malformedNumber(text)
		}
		return n, err
	}
	if d.decimals-exponent > maxNumericScale {
		return n, ErrNotProven
	}
	if d.significant == nil {
		return numeric{}, nil
	}
	if d.firstPower+exponent > maxNumericPower {
		return n, ErrNotProven
	}
	n.decimal, n.exponent = d, exponent
	n.weight = (d.firstPower + exponent) >> 2 // rounds down, also below zero
	n.count = n.weight - (d.lastPower+exponent)>>2 + 1
	return n, nil
}

func numericSpecial(s []byte) (numericClass, bool) {
	if equalFold(s, "nan") {
		return numericNaN, true
	}
	class := numericInfinity
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		if s[0] == '-' {
			class = numericMinusInfinity
		}
		s = s[1:]
	}
	return class, equalFold(s, "infinity") || equalFold(s, "inf")
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

// each groups the decimal digits into base-10000 digits.
func (d *decimal) each(exponent int, add func(digit uint16)) {
	power, last := d.firstPower+exponent, d.lastPower+exponent
	group := uint16(0)
	for _, b := range d.significant {
		if b == '.' {
			continue
		}
		group = group*10 + uint16(b-'0')
		if power&3 == 0 {
			add(group)
			group = 0
		}
		power--
	}
	if last&3 != 0 {
		for ; power&3 != 3; power-- {
			group *= 10
		}
		add(group)
	}
}
