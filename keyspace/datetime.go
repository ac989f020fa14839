package keyspace

import "math"

// Only what every DateStyle reads the same way is read here: ISO dates with a year of four or more digits.
// Everything else ('today', 'Jan 5', 'allballs', zone names) belongs to PostgreSQL.

const (
	microsecond = int64(1)
	second      = 1000000 * microsecond
	minute      = 60 * second
	hour        = 60 * minute
	day         = 24 * hour

	// PostgreSQL counts days and microseconds from 2000-01-01.
	minDate      = -2451545   // 4714-11-24 BC, the first day of the Julian calendar
	endDate      = 2145031949 // the day after 5874897-12-31
	minTimestamp = int64(minDate) * day
	endTimestamp = 9223371331200000000 // 294277-01-01

	// The years that have valid days; which days those are is checked when the value is known.
	minYear          = -4713
	maxDateYear      = 5874897
	maxTimestampYear = 294276
)

func validDate(v int64) bool {
	return v == math.MaxInt32 || v == math.MinInt32 || v >= minDate && v < endDate
}

func validTimestamp(v int64) bool {
	return v == math.MaxInt64 || v == math.MinInt64 || v >= minTimestamp && v < endTimestamp
}

// cursor reads a text from left to right.
type cursor struct{ s []byte }

func (c *cursor) take(b byte) bool {
	if len(c.s) == 0 || c.s[0] != b {
		return false
	}
	c.s = c.s[1:]
	return true
}

// number reads a run of digits that has between least and most of them.
func (c *cursor) number(least, most int) (v, digits int, ok bool) {
	for digits < len(c.s) && isDigit(c.s[digits]) {
		if digits == most {
			return 0, 0, false
		}
		v = v*10 + int(c.s[digits]-'0')
		digits++
	}
	c.s = c.s[digits:]
	return v, digits, digits >= least
}

// two reads exactly two digits; more may follow only if they are not digits.
func (c *cursor) two() (int, bool) {
	v, _, ok := c.number(2, 2)
	return v, ok
}

// isoDate is a date as written; BC is known only at the end of the text.
type isoDate struct{ year, month, day int }

func (c *cursor) date() (d isoDate, ok bool) {
	if d.year, _, ok = c.number(4, 7); !ok || !c.take('-') {
		return d, false
	}
	if d.month, ok = c.two(); !ok || !c.take('-') {
		return d, false
	}
	d.day, ok = c.two()
	return d, ok
}

// end reads the era and the end of the text, and returns the days since 2000-01-01.
func (c *cursor) end(d isoDate, maxYear int) (int64, error) {
	if string(c.s) == " BC" {
		c.s = nil
		if d.year == 0 {
			return 0, ErrNotProven
		}
		d.year = 1 - d.year
	} else if d.year == 0 {
		return 0, ErrNotProven
	}
	if len(c.s) != 0 || d.year < minYear || d.year > maxYear {
		return 0, ErrNotProven
	}
	if d.month < 1 || d.month > 12 || d.day < 1 || d.day > daysIn(d.year, d.month) {
		return 0, ErrInvalid
	}
	return daysSince2000(d), nil
}

func parseDate(text []byte) (int64, error) {
	c := cursor{trimSpace(text)}
	switch string(c.s) {
	case "infinity":
		return math.MaxInt32, nil
	case "-infinity":
		return math.MinInt32, nil
	}
	d, ok := c.date()
	if !ok {
		return 0, ErrNotProven
	}
	days, err := c.end(d, maxDateYear)
	if err == nil && !validDate(days) {
		err = ErrNotProven
	}
	return days, err
}

func parseTimestamp(text []byte, zoned bool) (int64, error) {
	c := cursor{trimSpace(text)}
	switch string(c.s) {
	case "infinity":
		return math.MaxInt64, nil
	case "-infinity":
		return math.MinInt64, nil
	}
	d, ok := c.date()
	if !ok {
		return 0, ErrNotProven
	}
	var clock, offset int64
	hasZone := false
	if c.take('T') || len(c.s) > 1 && isDigit(c.s[1]) && c.take(' ') {
		if clock, ok = c.clock(); !ok {
			return 0, ErrNotProven
		}
		if offset, hasZone, ok = c.zone(); !ok {
			return 0, ErrNotProven
		}
	}
	if zoned && !hasZone {
		return 0, ErrNotProven // the session's TimeZone decides
	}
	days, err := c.end(d, maxTimestampYear)
	if err != nil {
		return 0, err
	}
	if !zoned {
		offset = 0 // a timestamp without time zone ignores a zone in its text
	}
	if days < minDate-1 || days > endTimestamp/day {
		return 0, ErrNotProven
	}
	v := days*day + clock - offset
	if !validTimestamp(v) {
		return 0, ErrNotProven
	}
	return v, nil
}

// clock reads HH:MM[:SS[.ffffff]]. More decimals would be rounded, 24:00 and a leap second carried over;
// PostgreSQL shall do that.
func (c *cursor) clock() (int64, bool) {
	h, ok := c.two()
	if !ok || h > 23 || !c.take(':') {
		return 0, false
	}
	m, ok := c.two()
	if !ok || m > 59 {
		return 0, false
	}
	t := int64(h)*hour + int64(m)*minute
	if !c.take(':') {
		return t, true
	}
	s, ok := c.two()
	if !ok || s > 59 {
		return 0, false
	}
	t += int64(s) * second
	if !c.take('.') {
		return t, true
	}
	fraction, digits, ok := c.number(1, 6)
	if !ok {
		return 0, false
	}
	for ; digits < 6; digits++ {
		fraction *= 10
	}
	return t + int64(fraction), true
}

// zone reads Z or an offset of hours, minutes and seconds east of UTC, if there is one.
func (c *cursor) zone() (offset int64, has, ok bool) {
	if c.take('Z') {
		return 0, true, true
	}
	east := c.take('+')
	if !east && !c.take('-') {
		return 0, false, true
	}
	var parts [3]int
	for i := range parts {
		if i > 0 && !c.take(':') {
			break
		}
		if parts[i], ok = c.two(); !ok {
			return 0, false, false
		}
	}
	if parts[0] > 15 || parts[1] > 59 || parts[2] > 59 {
		return 0, false, false
	}
	offset = int64(parts[0])*hour + int64(parts[1])*minute + int64(parts[2])*second
	if !east {
		offset = -offset
	}
	return offset, true, true
}

func isLeap(year int) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

func daysIn(year, month int) int {
	switch month {
	case 2:
		if isLeap(year) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// daysSince2000 counts in the proleptic Gregorian calendar; year 0 is 1 BC.
func daysSince2000(d isoDate) int64 {
	// Years that begin in March put the leap day at their end. They are counted from one that is a multiple
	// of 400 before the first year that is read.
	y, m := int64(d.year)+4800, int64(d.month)-3
	if m < 0 {
		y--
		m += 12
	}
	days := y*365 + y/4 - y/100 + y/400 + (153*m+2)/5 + int64(d.day) - 1
	const to2000 = 6799*365 + 6799/4 - 6799/100 + 6799/400 + (153*10+2)/5 // 2000-01-01 in the same count
	return days - to2000
}
