package control

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/twopc"
)

// PreparedTransaction is a distributed transaction that is prepared on at least one node.
type PreparedTransaction struct {
	GID      string   `json:"gid"`
	Database string   `json:"database"`
	Age      float64  `json:"age_seconds"`
	Nodes    []string `json:"nodes"` // that have it prepared
	Decider  string   `json:"decider"`
	State    string   `json:"state"`
}

// TransactionList is what the nodes have prepared.
type TransactionList struct {
	Transactions []PreparedTransaction `json:"transactions"`
	// Unreachable are the nodes that could not be asked, and why.
	Unreachable map[string]string `json:"unreachable,omitempty"`
}

// ResolveRequest asks to settle a transaction now. The outcome, commit or rollback, may be left out.
type ResolveRequest struct {
	GID     string `json:"gid"`
	Outcome string `json:"outcome,omitempty"`
}

// ResolvedTransaction is what became of it.
type ResolvedTransaction struct {
	GID     string   `json:"gid"`
	Outcome string   `json:"outcome"` // committed, rolled back or left
	Nodes   []string `json:"nodes"`
	Reason  string   `json:"reason,omitempty"` // why it was left
}

var errNoSettler = &Refusal{Status: http.StatusNotImplemented, Message: "this controller settles no transactions"}

func (c *Controller) transactions(ctx context.Context, m *keyspace.Map) (*TransactionList, error) {
	if c.cfg.Settler == nil {
		return nil, errNoSettler
	}
	prepared, away := c.cfg.Settler.List(ctx, m)
	list := &TransactionList{Transactions: []PreparedTransaction{}}
	for _, p := range prepared {
		list.Transactions = append(list.Transactions, PreparedTransaction{
			GID: p.GID, Database: p.Database, Age: p.Age.Seconds(), Nodes: p.Nodes, Decider: p.Decider, State: p.State,
		})
	}
	for node, err := range away {
		if list.Unreachable == nil {
			list.Unreachable = map[string]string{}
		}
		list.Unreachable[node] = err.Error()
	}
	return list, nil
}

func (c *Controller) postResolve(ctx context.Context, r *http.Request) (any, error) {
	var req ResolveRequest
	if err := decodeBody(r, &req); err != nil {
		return nil, err
	}
	t := c.leading()
	if c.cfg.Settler == nil || t == nil {
		return nil, errNoSettler
	}
	wants := map[string]string{"": "", "commit": twopc.Committed, "rollback": twopc.RolledBack}
	want, known := wants[req.Outcome]
	if !known {
		return nil, badRequest("It is commit, rollback, or left out.", "%q is no outcome of a transaction", req.Outcome)
	}
	done, err := c.cfg.Settler.Resolve(ctx, t.follower.Map(), req.GID, want)
	var disagrees *twopc.Conflict
	switch {
	case errors.Is(err, twopc.ErrNotPrepared):
		return nil, &Refusal{Status: http.StatusNotFound, Message: err.Error(), Way: "See pgshoal tx list.", Err: err}
	case errors.As(err, &disagrees):
		return nil, &Refusal{Status: http.StatusConflict, Message: err.Error(), Way: "Resolve it without an outcome: it is settled as the decider says.", Err: err}
	case err != nil:
		return nil, err
	}
	c.log.Info("transaction resolved by request", "gid", done.GID, "outcome", done.Outcome, "reason", done.Reason)
	return ResolvedTransaction{GID: done.GID, Outcome: done.Outcome, Nodes: done.Nodes, Reason: done.Reason}, nil
}

// settleNode settles what a node that is about to leave takes part in, and refuses while something is left: a decider that
// is gone takes its decisions along.
func (c *Controller) settleNode(ctx context.Context, m *keyspace.Map, name string) error {
	if c.cfg.Settler == nil {
		return nil
	}
	prepared, away := c.cfg.Settler.List(ctx, m)
	for node, err := range away {
		return conflict("Start it first: what it has prepared must be settled before a node leaves.",
			"node %q does not answer (%v), and may have prepared a transaction that node %q decides", node, err, name)
	}
	for _, p := range prepared {
		if p.Decider != name && !slices.Contains(p.Nodes, name) {
			continue
		}
		done, err := c.cfg.Settler.Resolve(ctx, m, p.GID, "")
		switch {
		case errors.Is(err, twopc.ErrNotPrepared): // it came to its end by itself
		case err != nil:
			return err
		case done.Outcome == twopc.Left:
			return conflict("See pgshoal tx list.", "transaction %s of node %q cannot be settled: %s", p.GID, name, done.Reason)
		}
	}
	return nil
}
