package keyspace

import (
	"bytes"
	"slices"
)

// Halve is the bound that has as many of the points below it as above, or nearly: points that are alike stay together. It
// sorts the points. nil: they are all alike.
func Halve(points [][]byte) []byte {
	slices.SortFunc(points, bytes.Compare)
	var best []byte
	least := len(points)
	for below := 1; below < len(points); below++ {
		if bytes.Equal(points[below-1], points[below]) {
			continue
		}
		if apart := max(2*below-len(points), len(points)-2*below); apart < least {
			best, least = points[below], apart
		}
	}
	return best
}
