package simulate

import (
	"math"
	"math/rand/v2"
)

// zipf draws ranks 0, 1, 2, ... below a count with probabilities like (rank+1)^-exponent, for any exponent above 0, by
// rejection-inversion (Hörmann and Derflinger, 1996): no table, about one draw of chance for each answer.
// math/rand/v2 has only exponents above 1.
type zipf struct {
	exponent, count  float64
	low, high, close float64
}

func newZipf(exponent float64, count uint64) *zipf {
	z := &zipf{exponent: exponent, count: float64(count)}
	z.low = z.integral(1.5) - 1
	z.high = z.integral(z.count + 0.5)
	z.close = 2 - z.inverse(z.integral(2.5)-z.density(2))
	return z
}

func (z *zipf) draw(random *rand.Rand) uint64 {
	for {
		u := z.high + random.Float64()*(z.low-z.high)
		x := z.inverse(u)
		k := min(max(math.Floor(x+0.5), 1), z.count)
		if k-x <= z.close || u >= z.integral(k+0.5)-z.density(k) {
			return uint64(k) - 1
		}
	}
}

func (z *zipf) density(x float64) float64 { return math.Exp(-z.exponent * math.Log(x)) }

// integral is that of the density from 1 to x.
func (z *zipf) integral(x float64) float64 {
	log := math.Log(x)
	if d := (1 - z.exponent) * log; math.Abs(d) > 1e-8 {
		return math.Expm1(d) / d * log
	}
	return log
}

func (z *zipf) inverse(y float64) float64 {
	t := max(y*(1-z.exponent), -1)
	if math.Abs(t) > 1e-8 {
		return math.Exp(math.Log1p(t) / t * y)
	}
	return math.Exp(y)
}
