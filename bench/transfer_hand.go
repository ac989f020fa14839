package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5/pgconn"
)

// hand is a client that makes transfers over two nodes by itself, with the fewest statements that two-phase commit needs: what
// PostgreSQL takes for the same work on this machine, without a router, and so the most that a router can reach. It keeps the
// promise that a decision is durable before the commit is told, and no others: nobody could settle what it leaves, a role could decide
// for others, and no read could be atomic.
type hand struct {
	nodes  [2]*pgconn.PgConn
	number uint64
}

func openHand(ctx context.Context, dsns [2]string, number int) (*hand, error) {
	h := &hand{number: uint64(number) << 32}
	for i, dsn := range dsns {
		conn, err := pgconn.Connect(ctx, dsn)
		if err != nil {
			h.close(ctx)
			return nil, err
		}
		h.nodes[i] = conn
		for name, sql := range map[string]string{
			"begin": "BEGIN", "commit": "COMMIT",
			"update": "UPDATE account SET balance = balance + $1 WHERE id = $2",
			"decide": "INSERT INTO hand_decisions VALUES ($1)",
		} {
			if _, err := conn.Prepare(ctx, name, sql, nil); err != nil {
				h.close(ctx)
				return nil, err
			}
		}
	}
	return h, nil
}

func (h *hand) close(ctx context.Context) {
	for _, conn := range h.nodes {
		if conn != nil {
			_ = conn.Close(ctx)
		}
	}
}

// transfer moves one unit from an account of the first node to one of the second. The first node decides.
func (h *hand) transfer(ctx context.Context, from, to int) error {
	for i, id := range []int{from, to} {
		p := h.nodes[i].StartPipeline(ctx)
		p.SendQueryPrepared("begin", nil, nil, nil)
		p.SendQueryPrepared("update", [][]byte{fmt.Append(nil, 2*i-1), fmt.Append(nil, id)}, nil, nil)
		if err := finish(p); err != nil {
			return err
		}
	}
	h.number++
	gid := fmt.Sprintf("hand:%d", h.number)
	if err := h.nodes[1].Exec(ctx, "PREPARE TRANSACTION '"+gid+"'").Close(); err != nil {
		return err
	}
	p := h.nodes[0].StartPipeline(ctx)
	p.SendQueryPrepared("decide", [][]byte{[]byte(gid)}, nil, nil)
	p.SendQueryPrepared("commit", nil, nil, nil)
	if err := finish(p); err != nil {
		return err
	}
	return h.nodes[1].Exec(ctx, "COMMIT PREPARED '"+gid+"'").Close()
}

// finish sends a pipeline and reads all of its answers.
func finish(p *pgconn.Pipeline) error {
	err := p.Sync()
	for err == nil {
		var result any
		if result, err = p.GetResults(); err != nil || result == nil {
			break
		}
		switch result := result.(type) {
		case *pgconn.ResultReader:
			_, err = result.Close()
		case *pgconn.PipelineSync:
			return p.Close()
		}
	}
	_ = p.Close()
	return err
}

// byHand lets such clients work for the time of one measurement.
func (r *transferRun) byHand(ctx context.Context, clients int) (timing, error) {
	return measureClients(r.duration, clients, func() (func(*rand.Rand) error, func(), error) {
		r.hands++
		h, err := openHand(ctx, r.nodes, r.hands)
		if err != nil {
			return nil, nil, err
		}
		return func(random *rand.Rand) error {
			return h.transfer(ctx, r.left[random.IntN(len(r.left))], r.right[random.IntN(len(r.right))])
		}, func() { h.close(ctx) }, nil
	})
}
