package sqldiff

import "math/rand/v2"

// choices is the source of all decisions of the random generator: a stream of numbers that is recorded, so
// that a statement can be made again from a shorter or smaller stream. Zero, and the end of a replayed
// stream, mean the simplest alternative everywhere; so shrinking the stream shrinks the statement.
type choices struct {
	rand     *rand.Rand // nil when replaying
	recorded []int
	replay   []int
}

func newChoices(seed uint64) *choices { return &choices{rand: rand.New(rand.NewPCG(seed, 7))} }

// n chooses a number below k.
func (c *choices) n(k int) int {
	v := 0
	switch {
	case c.rand != nil:
		v = c.rand.IntN(k)
	case len(c.recorded) < len(c.replay):
		v = c.replay[len(c.recorded)] % k
	}
	c.recorded = append(c.recorded, v)
	return v
}

// chance is true in some percent of the cases, and false when replaying is over.
func (c *choices) chance(percent int) bool { return c.n(100) >= 100-percent }

func (c *choices) pick(words ...string) string { return words[c.n(len(words))] }

// shrink looks for a smaller stream that still fails, within a number of attempts.
func shrink(stream []int, attempts int, fails func([]int) bool) []int {
	try := func(next []int) bool {
		attempts--
		if attempts < 0 || !fails(next) {
			return false
		}
		stream = next
		return true
	}
	for size := len(stream) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(stream) && attempts > 0; {
			if !try(append(append([]int{}, stream[:at]...), stream[at+size:]...)) {
				at += size
			}
		}
	}
	for i := 0; i < len(stream) && attempts > 0; i++ {
		for _, smaller := range []int{0, stream[i] / 2} {
			if stream[i] != smaller {
				next := append([]int{}, stream...)
				next[i] = smaller
				if try(next) {
					break
				}
			}
		}
	}
	return stream
}
