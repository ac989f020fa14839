//go:build !race

package twopc

const raceDetector = false
