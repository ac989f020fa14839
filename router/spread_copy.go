package router

import (
	"bytes"
	"context"
	"fmt"

	"github.com/pgshoal/pgshoal/pgwire"
)

// copyOut passes the COPY data of several nodes on as those of one: with one beginning, one header and one end.
func (s *session) copyOut(ctx context.Context, r *spreadRun) error {
	nodes, err := s.nodesOf(r, 0)
	if err != nil {
		return err
	}
	values, err := s.readValues(ctx, r.values)
	if err != nil {
		return err
	}
	text := withValues(r.e.Fragments[0].Text, values)
	types, err := s.binaryTypes(ctx, text)
	if err == nil {
		err = s.answeringAll(ctx, nodes)
	}
	if err != nil {
		return err
	}
	var parts []*nodeRows
	for _, node := range nodes {
		p, err := s.participant(ctx, node)
		if err != nil {
			s.abandon(parts)
			return err
		}
		p.conn.SendQuery(text)
		if err := p.conn.Stream.Flush(); err != nil {
			p.conn.Broken = true
			s.abandon(parts)
			return lostNode(node)
		}
		s.atNode(node)
		parts = append(parts, &nodeRows{s: s, part: p, columns: p.copyColumns(types)})
	}
	c := copyOutput{s: s, header: r.e.CopyHeader}
	for i, n := range parts {
		c.first, c.last = i == 0, i == len(parts)-1
		if err := c.pass(n); err != nil {
			s.abandon(parts)
			return err
		}
	}
	s.client.Append(pgwire.AppendCopyDone(nil))
	s.complete(fmt.Sprintf("COPY %d", c.rows))
	return nil
}

// copyOutput puts COPY data together.
type copyOutput struct {
	s           *session
	first, last bool
	isBinary    bool
	header      bool // each node's text begins with a header line
	rows        int64
}

// pass reads one node's data up to its end.
func (c *copyOutput) pass(n *nodeRows) error {
	if n.part.owes() {
		if err := c.s.readPreamble(n.part); err != nil {
			n.ended = true
			return err
		}
	}
	conn := n.part.conn
	var failure *pgwire.Error
	begun := false
	for {
		typ, msg, err := conn.Stream.Next()
		if err != nil {
			conn.Broken, n.ended = true, true
			return lostNode(n.part.node)
		}
		switch typ {
		case 'H':
			if c.isBinary = msg[5] == 1; c.first {
				c.s.client.Append(msg)
			}
		case 'd':
			if n.columns != nil {
				if err := copiedToHome(n.part.oids, n.columns, msg[5:]); err != nil {
					return err
				}
			}
			if err := c.data(msg, !begun); err != nil {
				return err
			}
			begun = true
		case 'C':
			var rows int64
			if tag, err := pgwire.CommandTag(msg); err == nil {
				_, _ = fmt.Sscanf(string(tag), "COPY %d", &rows)
			}
			c.rows += rows
		case 'E':
			failure = pgwire.ParseError(msg)
		case 'N':
			c.s.client.Append(msg)
		case 'S':
			conn.ParameterStatus(msg)
		case 'Z':
			conn.TxStatus, n.ended = pgwire.ReadyStatus(msg), true
			if failure != nil {
				return failure
			}
			return nil
		}
	}
}

// binaryEnd ends COPY data in the binary format.
var binaryEnd = []byte{0xff, 0xff}

// data passes one message on; the beginning of a node's data is left out after the first node.
func (c *copyOutput) data(msg []byte, beginning bool) error {
	if c.isBinary {
		body := msg[5:]
		if beginning && !c.first {
			body = body[min(len(binaryHeader), len(body)):]
		}
		if !c.last {
			if beginning && c.first && len(body) == len(binaryHeader)+len(binaryEnd) || bytes.Equal(body, binaryEnd) {
				body = body[:len(body)-len(binaryEnd)]
			}
		}
		if len(body) == 0 {
			return nil
		}
		return c.send(pgwire.AppendCopyData(nil, body))
	}
	if beginning && !c.first && c.header {
		return nil
	}
	return c.send(msg)
}

func (c *copyOutput) send(msg []byte) error {
	c.s.client.Append(msg)
	if len(*c.s.client.Out()) < clientChunk {
		return nil
	}
	if err := c.s.client.Flush(); err != nil {
		return errClientGone
	}
	return nil
}
