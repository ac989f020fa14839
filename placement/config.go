package placement

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Algorithm is a way to choose nodes.
type Algorithm string

const (
	// Balanced keeps shards where they are and moves few: from nodes that hold too much to those that hold
	// too little, until all are within Slack of their fair part of size and of load. See balanced.go.
	Balanced Algorithm = "balanced"
	// Ring is consistent hashing with virtual nodes. See ring.go.
	Ring Algorithm = "ring"
	// Rendezvous takes the node with the highest hash of shard and node together. See rendezvous.go.
	Rendezvous Algorithm = "rendezvous"
	// Jump is jump consistent hashing over the nodes' IDs; it knows no weights. See jump.go.
	Jump Algorithm = "jump"
	// Maglev looks shards up in a table that nodes fill in turns. See maglev.go.
	Maglev Algorithm = "maglev"
	// Bounded is Ring where a node that is full passes shards on. See bounded.go.
	Bounded Algorithm = "bounded"
)

// Algorithms lists all, the default first.
var Algorithms = []Algorithm{Balanced, Ring, Rendezvous, Jump, Maglev, Bounded}

const (
	maxWeight       = 1e6
	maxVirtualNodes = 65536
	maxPoints       = 1 << 20 // of one node on the ring
	maxTableSize    = 1 << 24
)

// Config chooses an algorithm; start from Default.
type Config struct {
	Algorithm Algorithm
	// Slack of Balanced: nodes within this part of their fair part are left alone.
	Slack float64
	// VirtualNodes of Ring and Bounded: points on the ring for a weight of 1.
	VirtualNodes int
	// TableSize of Maglev: a prime number, best above a hundred times the number of nodes.
	TableSize int
	// Factor of Bounded: a node holds at most this multiple of its fair part.
	Factor float64
	// MaxMoves cuts the list of moves off, forced ones last; zero is no limit.
	MaxMoves int
}

// Default has the usual settings of an algorithm.
func Default(a Algorithm) Config {
	return Config{Algorithm: a, Slack: 0.05, VirtualNodes: 128, TableSize: 65537, Factor: 1.25}
}

// ParseAlgorithm finds an algorithm by its name.
func ParseAlgorithm(name string) (Algorithm, error) {
	if a := Algorithm(name); slices.Contains(Algorithms, a) {
		return a, nil
	}
	names := make([]string, len(Algorithms))
	for i, a := range Algorithms {
		names[i] = string(a)
	}
	return "", fmt.Errorf("there is no placement %q, but %s", name, strings.Join(names, ", "))
}

// Validate says what is wrong with the settings, if anything is.
func (c Config) Validate() error {
	if _, err := ParseAlgorithm(string(c.Algorithm)); err != nil {
		return fmt.Errorf("placement: %w", err)
	}
	switch {
	case c.MaxMoves < 0:
		return fmt.Errorf("placement: at most %d moves cannot be meant", c.MaxMoves)
	case c.Algorithm == Balanced && (math.IsNaN(c.Slack) || c.Slack < 0 || c.Slack >= 1):
		return fmt.Errorf("placement: slack %v is not at least 0 and below 1", c.Slack)
	case (c.Algorithm == Ring || c.Algorithm == Bounded) && (c.VirtualNodes < 1 || c.VirtualNodes > maxVirtualNodes):
		return fmt.Errorf("placement: %d virtual nodes are not between 1 and %d", c.VirtualNodes, maxVirtualNodes)
	case c.Algorithm == Maglev && !isTableSize(c.TableSize):
		return fmt.Errorf("placement: the table size %d is not a prime number up to %d", c.TableSize, maxTableSize)
	case c.Algorithm == Bounded && (math.IsNaN(c.Factor) || c.Factor <= 1 || c.Factor > 100):
		return fmt.Errorf("placement: the factor %v is not above 1 and at most 100", c.Factor)
	}
	return nil
}

func isTableSize(n int) bool {
	if n < 2 || n > maxTableSize {
		return false
	}
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}
