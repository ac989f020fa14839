package twopc

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRepeatedAnswers: an answer that comes twice changes nothing, whatever it says the second time.
// It goes through any answers of any number of participants in any order, and the outcome is the
// one that the answers allow.
func TestRepeatedAnswers(t *testing.T) {
	answers := rapid.SampledFrom([]answer{yes, yes, yes, no, lost})
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "participants")
		c, waiting := newCoordinator(n)
		want := committed
		for len(waiting) > 0 {
			var next []action
			for _, a := range rapid.Permutation(waiting).Draw(t, "order") {
				got := answers.Draw(t, "answer")
				switch {
				case got == yes:
				case a.step == commit && got == lost:
					want = inDoubt
				case a.step == prepare || a.step == commit:
					want = rolledBack
				}
				before := c.phase
				next = append(next, c.answer(a.part, got)...)
				again := c.answers[a.part]
				if c.phase == before && (c.answer(a.part, answers.Draw(t, "again")) != nil || c.answers[a.part] != again) {
					t.Fatalf("a second answer of participant %d was taken", a.part)
				}
			}
			if slices.ContainsFunc(next, func(a action) bool { return a.step == commitPrepared }) && want != committed {
				t.Fatalf("commits what is %v", want)
			}
			waiting = next
		}
		if c.phase < doneCommitted || c.outcome() != want {
			t.Fatalf("phase %d, outcome %v, want %v", c.phase, c.outcome(), want)
		}
	})
}
