//go:build race

package plan_test

// raceShare leaves more rounds out under the race detector: planning has one goroutine and becomes ten times slower.
const raceShare = 8
