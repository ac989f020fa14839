package simulate

import (
	"io"
	"strconv"
	"strings"
)

// kind is what keys are like.
type kind string

const (
	uniform    kind = "uniform"
	zipfian    kind = "zipf"
	sequential kind = "sequential"
	timestamps kind = "timestamps"
	fromFile   kind = "file"
)

const maxExponent = 10

// Dist says which keys the rows have.
type Dist struct {
	Kind     kind
	Exponent float64 // of zipf
	Path     string  // of a file
	// Open reads the file from its beginning; it is asked several times.
	Open func() (io.ReadCloser, error)
}

func (d Dist) String() string {
	switch d.Kind {
	case zipfian:
		return string(d.Kind) + ":" + strconv.FormatFloat(d.Exponent, 'g', -1, 64)
	case fromFile:
		return string(d.Kind) + ":" + d.Path
	}
	return string(d.Kind)
}

// ParseDist reads uniform, zipf:EXPONENT, sequential, timestamps or file:PATH. Who uses a file sets Open.
func ParseDist(text string) (Dist, error) {
	name, rest, more := strings.Cut(text, ":")
	switch d := (Dist{Kind: kind(name)}); d.Kind {
	case uniform, sequential, timestamps:
		if more {
			return Dist{}, wrong("dist", "%s takes nothing after it", name)
		}
		return d, nil
	case zipfian:
		exponent, err := strconv.ParseFloat(rest, 64)
		if err != nil || !(exponent > 0 && exponent <= maxExponent) {
			return Dist{}, wrong("dist", "zipf needs an exponent above 0 and at most %d, like zipf:1.1", maxExponent)
		}
		d.Exponent = exponent
		return d, nil
	case fromFile:
		if rest == "" {
			return Dist{}, wrong("dist", "file needs a path, like file:keys.txt")
		}
		d.Path = rest
		return d, nil
	}
	return Dist{}, wrong("dist", "there is no distribution %q, but uniform, zipf:EXPONENT, sequential, timestamps, file:PATH", text)
}
