package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/sqltext"
)

// cancelTimeout is how long a cancelled statement may take to end before the connection is given up.
const cancelTimeout = 5 * time.Second

var errMalformed = errors.New("the node broke the protocol")

// Wire writes a statement that is in UTF-8 for this connection, whose client encoding may be another
// one. A text that cannot be written becomes one that no server accepts.
func (c *Conn) Wire(sql string) string {
	if c.Params["client_encoding"] == "UTF8" || sqltext.IsASCII(sql) {
		return sql
	}
	if c.Params["client_encoding"] == "SQL_ASCII" || c.Params["server_encoding"] == "SQL_ASCII" {
		return sql // bytes that nobody converts
	}
	out, ok := sqltext.ASCII(sql, c.Params["standard_conforming_strings"] != "off")
	if !ok {
		return "'"
	}
	return out
}

// SendQuery appends a simple Query in UTF-8; Stream.Flush sends it.
func (c *Conn) SendQuery(sql string) {
	out := c.Stream.Out()
	*out = pgwire.AppendQuery(*out, c.Wire(sql))
}

// SendParams appends Parse, Bind, Execute and Sync with parameters in text (nil is NULL), using
// the unnamed statement and portal.
func (c *Conn) SendParams(sql string, params ...[]byte) {
	out := c.Stream.Out()
	buf := pgwire.AppendParse(*out, "", c.Wire(sql), nil)
	buf = pgwire.AppendBind(buf, "", "", nil, params, nil)
	buf = pgwire.AppendExecute(buf, "", 0)
	*out = pgwire.AppendSync(buf)
}

// Exec runs statements with the simple protocol and throws rows away. The first error comes back
// as the *pgwire.Error that the node sent. When ctx ends, what runs is cancelled.
func (c *Conn) Exec(ctx context.Context, sql string) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	c.SendQuery(sql)
	return c.roundTrip(ctx, nil)
}

// Query is Exec that returns the rows, values in text, nil for NULL. It is for small results.
func (c *Conn) Query(ctx context.Context, sql string) ([][][]byte, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	c.SendQuery(sql)
	return c.collect(ctx)
}

// QueryParams is Query with parameters in text; see SendParams.
func (c *Conn) QueryParams(ctx context.Context, sql string, params ...[]byte) ([][][]byte, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	c.SendParams(sql, params...)
	return c.collect(ctx)
}

// QueryTyped is QueryParams with the types of the parameters.
func (c *Conn) QueryTyped(ctx context.Context, sql string, types []uint32, params [][]byte) ([][][]byte, error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	out := c.Stream.Out()
	buf := pgwire.AppendParse(*out, "", c.Wire(sql), types)
	buf = pgwire.AppendBind(buf, "", "", nil, params, nil)
	buf = pgwire.AppendExecute(buf, "", 0)
	*out = pgwire.AppendSync(buf)
	return c.collect(ctx)
}

// ready refuses before anything is sent.
func (c *Conn) ready(ctx context.Context) error {
	if c.Broken {
		return pgwire.Errorf(codeConnectionFailed, "the connection to node %q is broken", c.Key.Node)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (c *Conn) collect(ctx context.Context) ([][][]byte, error) {
	var rows [][][]byte
	err := c.roundTrip(ctx, func(msg []byte) error {
		// One copy holds all values of the row: msg lives only until the next read.
		row, err := pgwire.DataRow(append([]byte(nil), msg...), nil)
		if err == nil {
			rows = append(rows, row)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// Send is the first half of Exec, and Receive is the other one. What Send could not send, or not as a whole, the node does not run.
func (c *Conn) Send(ctx context.Context, sql string) error {
	if err := c.ready(ctx); err != nil {
		return err
	}
	c.SendQuery(sql)
	err := c.heard()
	if err == nil {
		err = c.Stream.Flush()
	}
	if err != nil {
		c.Broken = true
		return c.lost(err)
	}
	return nil
}

// Receive waits for the end of what Send has sent.
func (c *Conn) Receive(ctx context.Context) error {
	return c.receive(ctx, nil, func() error { return nil })
}

// Keep makes sure that the connection has a prepared statement, and returns its name.
func (c *Conn) Keep(ctx context.Context, id uint64, sql string) (string, error) {
	if name, known := c.Statements.Name(id); known {
		return name, nil
	}
	if err := c.ready(ctx); err != nil {
		return "", err
	}
	name, evicted := c.Statements.Add(id)
	out := c.Stream.Out()
	if evicted != "" {
		*out = pgwire.AppendClose(*out, pgwire.Statement, evicted)
	}
	*out = pgwire.AppendParse(*out, name, c.Wire(sql), nil)
	*out = pgwire.AppendSync(*out)
	if err := c.roundTrip(ctx, nil); err != nil {
		c.Statements.Remove(id)
		return "", err
	}
	return name, nil
}

var errGone = errors.New("the node has closed the connection")

// heard finds out whether the node has ended the connection already: then what is sent now is lost for certain, and
// who waited for an answer would not know.
func (c *Conn) heard() error {
	if c.Stream.Buffered() == 0 && c.probe.look() == quiet || c.alive() {
		return nil
	}
	return errGone
}

// roundTrip sends what is pending and reads up to ReadyForQuery.
func (c *Conn) roundTrip(ctx context.Context, onRow func(msg []byte) error) error {
	return c.receive(ctx, onRow, c.Stream.Flush)
}

func (c *Conn) lost(err error) error {
	return &failure{pgwire.Errorf(codeConnectionFailed, "lost the connection to node %q: %v", c.Key.Node, err), err}
}

// receive sends and reads up to ReadyForQuery.
func (c *Conn) receive(ctx context.Context, onRow func(msg []byte) error, send func() error) error {
	finish := c.cancelWith(ctx)
	var answer *pgwire.Error
	err := send()
	if err == nil {
		answer, err = c.readResult(onRow)
	}
	cancelled := finish()
	if err != nil {
		c.Broken = true
	}
	switch {
	case answer != nil:
		err = answer // a FATAL one is followed by the end of the connection, which is no news
	case err != nil:
		err = c.lost(err)
	default:
		return nil
	}
	if cancelled {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// cancelWith cancels what runs when ctx ends, and makes sure that reading ends too. The returned
// function waits for that and reports whether it happened.
func (c *Conn) cancelWith(ctx context.Context) (finish func() bool) {
	if ctx.Done() == nil {
		return func() bool { return false }
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = c.Stream.Conn.SetDeadline(time.Now().Add(cancelTimeout))
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer cancel()
		// When this fails, the deadline ends the wait, and the connection with it.
		_ = c.Cancel(ctx)
	})
	return func() bool {
		if stop() {
			return false
		}
		<-done
		_ = c.Stream.Conn.SetDeadline(time.Time{})
		return true
	}
}

// readResult reads up to ReadyForQuery and returns the first error of the statements. The other
// error says that the connection did not get there, and leaves it in an unknown state.
func (c *Conn) readResult(onRow func(msg []byte) error) (first *pgwire.Error, err error) {
	for {
		typ, msg, err := c.Stream.Next()
		if err != nil {
			return first, err
		}
		switch typ {
		case 'D':
			if onRow != nil && first == nil {
				if err := onRow(msg); err != nil {
					return nil, fmt.Errorf("%w: %w", errMalformed, err)
				}
			}
		case 'E':
			if first == nil {
				first = pgwire.ParseError(msg)
			}
		case 'S':
			c.ParameterStatus(msg)
		case 'G', 'W':
			// There is no data to give, and the caller should have known.
			return nil, errors.New("COPY FROM STDIN cannot be run here")
		case 'Z':
			c.TxStatus = pgwire.ReadyStatus(msg)
			return first, nil
		case 'A':
			if c.Notification != nil {
				c.Notification(msg)
			}
		case 'N', 'T', 'C', 'I', '1', '2', '3', 'n', 's', 't', 'H', 'd', 'c':
		default:
			return nil, fmt.Errorf("%w: unexpected message %q", errMalformed, typ)
		}
	}
}
