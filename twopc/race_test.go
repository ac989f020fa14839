//go:build race

package twopc

// raceDetector skips the model check, which has one goroutine and becomes ten times slower.
const raceDetector = true
