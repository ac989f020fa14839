package placement

// The hashes here decide where shards are, so they must never change.

// mix is the finaliser of splitmix64: a bijection in which every bit of the input changes every bit of the output.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio: steps by it never repeat

func hashShard(id uint32) uint64 { return mix(uint64(id) + golden) }

// hashName is FNV-1a, mixed, for the salt'th of several independent hashes of one name.
func hashName(name string, salt uint64) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return mix(h + salt*golden)
}
