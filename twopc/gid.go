package twopc

import (
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"strings"
)

const (
	gidPrefix    = "pgshoal:"
	randomLength = 16
)

// NewGID names a distributed transaction. The cluster is part of the name, so that recovery never
// touches what others prepared; the decider is, so that recovery knows whom to ask; the random
// part keeps others from deciding it.
func NewGID(cluster, decider string) string {
	var random [randomLength]byte
	_, _ = rand.Read(random[:]) // never fails
	return clusterPrefix(cluster) + url.QueryEscape(decider) + ":" + hex.EncodeToString(random[:])
}

// ParseGID returns the decider of a gid of this cluster; ok is false for all others.
func ParseGID(gid, cluster string) (decider string, ok bool) {
	rest, ok := strings.CutPrefix(gid, clusterPrefix(cluster))
	if !ok {
		return "", false
	}
	escaped, random, ok := strings.Cut(rest, ":")
	if !ok {
		return "", false
	}
	raw, err := hex.DecodeString(random)
	if err != nil || len(raw) != randomLength || hex.EncodeToString(raw) != random {
		return "", false
	}
	decider, err = url.QueryUnescape(escaped)
	// A name that is written in another way than NewGID writes it is somebody else's.
	if err != nil || decider == "" || url.QueryEscape(decider) != escaped {
		return "", false
	}
	return decider, true
}

// clusterPrefix begins the gids of a cluster and of no other one: names are escaped, so that they
// contain neither colons nor quotes.
func clusterPrefix(cluster string) string { return gidPrefix + url.QueryEscape(cluster) + ":" }

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
