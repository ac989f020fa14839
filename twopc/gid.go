package twopc

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

const (
	gidPrefix    = "pgshoal:"
	randomLength = 16
)

// ID is a distributed transaction as its coordinator knows it.
type ID struct {
	GID string
	// secret is what pg_shoal.decide and mark want: all roles of a node can read gids, and must not be able to decide.
	secret string
	// nodes are the participants, as a literal of SQL.
	nodes string
}

// Prefix begins the gids of a cluster, and no others.
func Prefix(cluster string) string { return clusterPrefix(cluster) }

// NewID names a distributed transaction. The cluster is part of the name, so that recovery never
// touches what others prepared; the decider is, so that recovery knows whom to ask; the last part is the
// hash of the secret.
func NewID(cluster, decider string) ID {
	secret := rand.Text()
	hash := sha256.Sum256([]byte(secret))
	return ID{GID: clusterPrefix(cluster) + url.QueryEscape(decider) + ":" + hex.EncodeToString(hash[:randomLength]), secret: secret}
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
	// A name that is written in another way than NewID writes it is somebody else's.
	if err != nil || decider == "" || url.QueryEscape(decider) != escaped {
		return "", false
	}
	return decider, true
}

// clusterPrefix begins the gids of a cluster and of no other one: names are escaped, so that they
// contain neither colons nor quotes.
func clusterPrefix(cluster string) string { return gidPrefix + url.QueryEscape(cluster) + ":" }

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
