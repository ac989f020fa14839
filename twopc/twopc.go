// Package twopc makes a transaction over several nodes all or nothing: it prepares, decides,
// commits, and settles what a crash has left in doubt.
package twopc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Participant is a node's open transaction.
type Participant interface {
	Node() string
	// Exec runs one statement. An error that the node answered has a SQLState method.
	Exec(ctx context.Context, sql string) error
}

const prefix = "pgshoal"

// NewGID names a distributed transaction. The decider is part of the name, so that recovery
// knows whom to ask; the random part is what keeps others from deciding it.
func NewGID(cluster, decider string) string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return strings.Join([]string{prefix, cluster, decider, hex.EncodeToString(random[:])}, ":")
}

// ParseGID splits a gid of this cluster; ok is false for all others.
func ParseGID(gid, cluster string) (decider string, ok bool) {
	parts := strings.Split(gid, ":")
	if len(parts) != 4 || parts[0] != prefix || parts[1] != cluster {
		return "", false
	}
	return parts[2], true
}

// ErrInDoubt is a commit whose outcome this process could not learn; recovery settles it.
var ErrInDoubt = errors.New("the outcome of the transaction is not known yet")

// answered reports an error with which the node said no. A connection that was lost or ended by
// the node (classes 08 and 57P) says nothing: the commit may have happened just before.
func answered(err error) bool {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return false
	}
	code := e.SQLState()
	return !strings.HasPrefix(code, "08") && !strings.HasPrefix(code, "57P")
}

// Commit makes the transactions of all participants durable, or none. The first participant is
// the decider: its own commit, together with a decision row, is the decision. A nil error means
// committed everywhere or sure to be; ErrInDoubt means that recovery will find out; any other
// error means rolled back everywhere or sure to be.
func Commit(ctx context.Context, gid string, participants []Participant) error {
	decider, others := participants[0], participants[1:]
	if err := prepare(ctx, gid, decider, others); err != nil {
		return err
	}
	if err := decider.Exec(ctx, "SELECT pg_shoal.decide("+quote(gid)+")"); err != nil {
		return abort(ctx, gid, decider, others, err)
	}
	if err := decider.Exec(ctx, "COMMIT"); err != nil {
		if answered(err) {
			return abort(ctx, gid, decider, others, err)
		}
		return errors.Join(ErrInDoubt, err)
	}
	// The decision is durable. What fails from here on, recovery completes.
	var g errgroup.Group
	for _, p := range others {
		g.Go(func() error { return p.Exec(ctx, "COMMIT PREPARED "+quote(gid)) })
	}
	_ = g.Wait()
	return nil
}

func prepare(ctx context.Context, gid string, decider Participant, others []Participant) error {
	failed := make([]error, len(others))
	var g errgroup.Group
	for i, p := range others {
		g.Go(func() error {
			failed[i] = p.Exec(ctx, "PREPARE TRANSACTION "+quote(gid))
			return nil
		})
	}
	_ = g.Wait()
	err := firstAnswered(failed)
	if err == nil {
		return nil
	}
	// Whoever did prepare is rolled back here; one that may have, by recovery.
	for i, p := range others {
		if failed[i] == nil {
			g.Go(func() error { return p.Exec(ctx, "ROLLBACK PREPARED "+quote(gid)) })
		}
	}
	g.Go(func() error { return decider.Exec(ctx, "ROLLBACK") })
	_ = g.Wait()
	return err
}

// firstAnswered prefers what a node said over a connection that broke.
func firstAnswered(errs []error) error {
	var first error
	for _, err := range errs {
		if err != nil && answered(err) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func abort(ctx context.Context, gid string, decider Participant, others []Participant, cause error) error {
	var g errgroup.Group
	for _, p := range others {
		g.Go(func() error { return p.Exec(ctx, "ROLLBACK PREPARED "+quote(gid)) })
	}
	g.Go(func() error { return decider.Exec(ctx, "ROLLBACK") })
	_ = g.Wait()
	return fmt.Errorf("deciding %s: %w", gid, cause)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
