//go:build !race

package plan_test

const raceShare = 1
