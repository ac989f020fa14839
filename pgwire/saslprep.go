package pgwire

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// saslPrep prepares a password with RFC 4013 exactly where PostgreSQL and libpq do: pure ASCII
// stays as it is, control characters included, and a password that the profile refuses is used
// as its raw bytes. Other profiles (RFC 8265) give other keys for the same password.
func saslPrep(password string) string {
	if isASCII(password) || !utf8.ValidString(password) {
		return password
	}
	mapped := []rune(strings.Map(func(r rune) rune {
		switch {
		case nonASCIISpaces.contain(r):
			return ' '
		case mappedToNothing.contain(r):
			return -1
		}
		return r
	}, password))
	// RFC 4013 checks what comes out of the normalisation, PostgreSQL what goes into it.
	if len(mapped) == 0 || slices.ContainsFunc(mapped, refused) || !bidiAllowed(mapped) {
		return password
	}
	return norm.NFKC.String(string(mapped))
}

func refused(r rune) bool { return prohibitedOutput.contain(r) || unassigned.contain(r) }

// bidiAllowed is RFC 3454, section 6: a string with right-to-left characters has no left-to-right
// ones, and both begins and ends with a right-to-left one.
func bidiAllowed(text []rune) bool {
	if !slices.ContainsFunc(text, rightToLeft.contain) {
		return true
	}
	return !slices.ContainsFunc(text, leftToRight.contain) &&
		rightToLeft.contain(text[0]) && rightToLeft.contain(text[len(text)-1])
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// runeRanges are disjoint closed intervals in ascending order: first, last, first, last, ...
type runeRanges []rune

func (t runeRanges) contain(r rune) bool {
	i, isBound := slices.BinarySearch(t, r)
	// Between the bounds of an interval an odd number of bounds is smaller.
	return isBound || i%2 == 1
}
