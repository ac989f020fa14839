package keyspace

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestHalve(t *testing.T) {
	for points, want := range map[string]string{"": "", "a": "", "aaa": "", "ab": "b", "abcd": "c", "abbbbbbc": "b", "aabbbbbbc": "b", "abbbbbbcc": "c", "bbba": "b"} {
		if got := Halve(split(points)); string(got) != want {
			t.Errorf("%s: %q, want %q", points, got, want)
		}
	}
}

func split(letters string) (points [][]byte) {
	for _, c := range []byte(letters) {
		points = append(points, []byte{c})
	}
	return points
}

// No other bound is closer to the middle.
func TestHalveIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		points := split(rapid.StringMatching("[a-f]{0,12}").Draw(t, "points"))
		apart := func(bound []byte) int {
			below := 0
			for _, p := range points {
				if bytes.Compare(p, bound) < 0 {
					below++
				}
			}
			return max(2*below-len(points), len(points)-2*below)
		}
		best := Halve(points)
		for _, p := range points {
			if best == nil && !bytes.Equal(p, points[0]) {
				t.Fatal("no bound")
			}
			if best != nil && apart(p) < apart(best) {
				t.Fatalf("%q is better than %q", p, best)
			}
		}
	})
}
