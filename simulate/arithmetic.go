package simulate

import "math/bits"

func commonDivisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func leastCommonMultiple(a, b int) int { return a / int(commonDivisor(uint64(a), uint64(b))) * b }

func mulMod(a, b, m uint64) uint64 {
	high, low := bits.Mul64(a%m, b)
	return bits.Rem64(high, low, m)
}
