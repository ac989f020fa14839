// Package twopc makes a transaction over several nodes all or nothing: it prepares, decides,
// commits, and settles what a crash has left in doubt.
//
// The participants of a transaction prepare, except one, the decider, which then writes a decision row
// in its own part and commits: that commit is the decision. What is prepared and was not
// completed is found by recovery, which asks the decider. No decision means that there must never
// be one: recovery first records that it is aborted, under the same key, and then rolls back.
//
// What to do is decided by two state machines without I/O, coordinator and recovery. A model check
// walks through all their interleavings with crashes and lost messages. Driver and Recover do it.
//
// What it relies on: a node keeps what it has acknowledged. So a failover must not lose acknowledged
// transactions (synchronous replication), as for a single server; and a node must not leave the
// cluster, nor its name be given to another one, before what it takes part in is settled: a
// decider that is gone takes its decisions along, and Recover leaves and reports such transactions.
package twopc

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/pgshoal/pgshoal/pgwire"
)

// Participant is a node's open transaction.
type Participant interface {
	Node() string
	// Keep returns the name of a statement that the session has prepared from then on, or none where it must not keep one; the text
	// is one of few.
	Keep(ctx context.Context, sql string) (name string, err error)
	// Send begins to run one string of statements in the simple protocol, and Receive waits for their end. An error that the
	// node answered has the methods SQLState and Relation, which is the schema and the table that it is about, if any.
	Send(ctx context.Context, sql string) error
	Receive(ctx context.Context) error
}

// ErrInDoubt is a commit whose outcome this process could not learn; recovery settles it.
var ErrInDoubt = errors.New("the outcome of the transaction is not known yet")

// errNoParticipants is a mistake of the caller.
var errNoParticipants = errors.New("twopc: a transaction needs a participant")

// defaultTimeout is long, because a COMMIT that waits for a synchronous replica and is cancelled
// is committed all the same, but not on the replica.
const defaultTimeout = time.Minute

// Driver commits transactions. Its zero value is ready for use.
type Driver struct {
	// Hook is called at named points, "before prepare n2", "after commit n1" and so on, possibly by
	// several goroutines at once. Tests crash, pause and cut connections there.
	Hook func(point string)
	// Timeout bounds each phase after the prepares, which the caller's context does not end;
	// 0 is a minute.
	Timeout time.Duration
	// Again, if set, opens another session on a node. COMMIT PREPARED is tried again there for some seconds when the participant's own
	// connection is lost, so that who is told of the commit finds it on all nodes. The function gives the session back.
	Again func(ctx context.Context, node string) (Participant, func(), error)
	// Blocks, if set, is called before Commit waits for other things than its participants.
	Blocks func()
}

// againFor is how long a commit waits for a node that is lost after the decision; recovery does the rest.
const (
	againFor   = 5 * time.Second
	againAfter = 50 * time.Millisecond
)

// Commit commits with the zero Driver.
func Commit(ctx context.Context, id ID, participants []Participant) error {
	return Driver{}.Commit(ctx, id, participants)
}

// Commit makes the transactions of all participants durable, or none. The first participant is
// the decider. A nil error means committed everywhere or sure to be; ErrInDoubt means that recovery
// will find out; any other error means rolled back everywhere or sure to be.
//
// The context can stop it until all have prepared. From then on it is brought to an end.
func (d Driver) Commit(ctx context.Context, id ID, participants []Participant) error {
	if len(participants) == 0 {
		return errNoParticipants
	}
	id.nodes = nodesLiteral(participants)
	c, actions := newCoordinator(len(participants))
	var cause error
	for len(actions) > 0 {
		running, cancel := ctx, context.CancelFunc(func() {})
		if c.phase != preparing {
			running, cancel = context.WithTimeout(context.WithoutCancel(ctx), d.timeout())
		}
		errs := d.perform(running, id, participants, actions)
		cancel()
		if c.phase == preparing || c.phase == deciding {
			cause = telling(errs)
		}
		var next []action
		for i, a := range actions {
			got := classify(errs[i])
			if _, never := errs[i].(*unsent); never && a.step == commit {
				got = no // PostgreSQL runs no half of a message, so there is no doubt
			}
			next = append(next, c.answer(a.part, got)...)
		}
		actions = next
	}
	switch c.outcome() {
	case committed:
		return nil
	case inDoubt:
		return errors.Join(ErrInDoubt, cause)
	}
	return cause
}

// nodesLiteral is an array of names. A literal of the whole array costs a node less than one that it has to put together.
func nodesLiteral(participants []Participant) string {
	names, plain := make([]string, len(participants)), true
	for i, p := range participants {
		names[i] = p.Node()
		plain = plain && plainName.MatchString(names[i]) && !strings.EqualFold(names[i], "null")
	}
	if plain {
		return "'{" + strings.Join(names, ",") + "}'"
	}
	for i := range names {
		names[i] = quote(names[i])
	}
	return "ARRAY[" + strings.Join(names, ", ") + "]"
}

// plainName is a name that means itself in the literal of an array.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

func (d Driver) timeout() time.Duration {
	if d.Timeout > 0 {
		return d.Timeout
	}
	return defaultTimeout
}

// perform runs the actions of one phase, each on its own participant, at the same time: all are sent before one is waited for.
// The caller's goroutine does it all, so that participants may be sockets that only it can wait for.
func (d Driver) perform(ctx context.Context, id ID, participants []Participant, actions []action) []error {
	errs := make([]error, len(actions))
	for i, a := range actions {
		d.hook("before", a.step, participants[a.part])
		if err := send(ctx, id, participants[a.part], a.step); err != nil {
			errs[i] = &unsent{err}
		}
	}
	for i, a := range actions {
		if errs[i] == nil {
			errs[i] = receive(ctx, id, participants[a.part], a.step)
		}
		if !d.triesAgain(a.step, errs[i]) {
			d.hook("after", a.step, participants[a.part])
		}
	}
	d.tryAgain(ctx, id, participants, actions, errs)
	return errs
}

// hook is a function of its own, so that no text is made where nobody wants it.
func (d Driver) hook(when string, s step, p Participant) {
	if d.Hook != nil {
		d.Hook(when + " " + s.String() + " " + p.Node())
	}
}

func send(ctx context.Context, id ID, p Participant, s step) error {
	name := ""
	if row := rows[s]; row != "" {
		var err error
		if name, err = p.Keep(ctx, row); err != nil {
			return err
		}
	}
	return p.Send(ctx, statement(s, id, name))
}

// receive waits for a step, and does it as the owner of the prepared transaction where that takes another role.
func receive(ctx context.Context, id ID, p Participant, s step) error {
	err := p.Receive(ctx)
	if (s == commitPrepared || s == rollbackPrepared) && sqlState(err) == codeNotOwner {
		return finishAsOwner(ctx, id, p, s)
	}
	if (s == prepare || s == commit) && err != nil {
		return explain(err, id)
	}
	return err
}

func exec(ctx context.Context, p Participant, sql string) error {
	if err := p.Send(ctx, sql); err != nil {
		return err
	}
	return p.Receive(ctx)
}

func (d Driver) triesAgain(s step, err error) bool {
	return s == commitPrepared && d.Again != nil && classify(err) == lost
}

// unsent is a request that did not get to its node as a whole.
type unsent struct{ error }

func (u *unsent) Unwrap() error { return u.error }

// tryAgain tries what is lost of the last phase in other sessions, all nodes at the same time.
func (d Driver) tryAgain(ctx context.Context, id ID, participants []Participant, actions []action, errs []error) {
	var group sync.WaitGroup
	some := false
	for i, a := range actions {
		if d.triesAgain(a.step, errs[i]) {
			some = true
			p := participants[a.part]
			group.Go(func() {
				errs[i] = d.again(ctx, id, p.Node(), errs[i])
				d.hook("after", a.step, p)
			})
		}
	}
	if some && d.Blocks != nil {
		d.Blocks()
	}
	group.Wait()
}

// again tries COMMIT PREPARED in other sessions of a node. A transaction that is not there any more was committed: nothing else
// can have become of it after the decision. One that is busy is being committed by the session that was lost.
func (d Driver) again(ctx context.Context, id ID, node string, err error) error {
	ctx, cancel := context.WithTimeout(ctx, againFor)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return err
		case <-time.After(againAfter):
		}
		p, done, failed := d.Again(ctx, node)
		if failed != nil {
			continue
		}
		if failed = send(ctx, id, p, commitPrepared); failed == nil {
			failed = receive(ctx, id, p, commitPrepared)
		}
		done()
		switch {
		case failed == nil || sqlState(failed) == codeUnknownGID:
			return nil
		case sqlState(failed) != codeBusyGID && classify(failed) == no:
			return failed
		}
	}
}

const (
	codeNotOwner   = "42501"
	codeUnknownGID = "42704"
	codeBusyGID    = "55000"
	codeLockNotGot = "55P03"
	codeNoDatabase = "3D000"
	codeNoTable    = "42P01"

	codeDuplicate     = "23505"
	codeNull          = "23502"
	codeSerialization = "40001"
	codeNoTransaction = "25P01"
)

// row is an INSERT into one of the views that take a coordinator's rows, to be kept prepared.
//
// Where no transaction is open, PostgreSQL would decide at once, or prepare the row alone. There the statement and its transaction began at
// the same time, the row has no name, and PostgreSQL refuses it. In a transaction that has failed it refuses any statement.
//
// The condition is always true. It makes the end of the transaction survive the node, whatever the session has chosen: half
// of a transaction must not get lost.
func row(view, gid, nodes, secret string) string {
	return inserts + view + " (gid, nodes, secret) SELECT " +
		"CASE WHEN pg_catalog.transaction_timestamp() OPERATOR(pg_catalog.=) pg_catalog.statement_timestamp() THEN NULL ELSE " + gid + "::pg_catalog.text END, " +
		nodes + "::pg_catalog._text, " + secret + "::pg_catalog.text " +
		"WHERE CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) ANY ('{off,local}'::pg_catalog._text) " +
		"THEN pg_catalog.set_config('synchronous_commit', 'on', true) IS NOT NULL ELSE true END"
}

// views take what participants write before they prepare or commit.
var views = [...]string{prepare: "record", commit: "decide", recordAbort: ""}

// rows are the same as statements to be kept.
var rows = [...]string{prepare: row(views[prepare], "$1", "$2", "$3"), commit: row(views[commit], "$1", "$2", "$3"), recordAbort: ""}

// What a participant runs that writes its row begins with one of these, for recovery to know it by.
const (
	executes = "EXECUTE "
	inserts  = "INSERT INTO pg_shoal."
)

// statement is the SQL of a participant's step. The name is that of its row's statement, if it is kept. The row comes in one message with what
// ends the transaction: nobody can fall asleep between them.
func statement(s step, id ID, name string) string {
	switch s {
	case prepare:
		return write(s, id, name) + "; PREPARE TRANSACTION " + quote(id.GID)
	case commit:
		return write(s, id, name) + "; COMMIT"
	case commitPrepared:
		return "COMMIT PREPARED " + quote(id.GID)
	case rollbackPrepared:
		return "ROLLBACK PREPARED " + quote(id.GID)
	}
	return "ROLLBACK"
}

func write(s step, id ID, name string) string {
	if name == "" {
		return row(views[s], quote(id.GID), id.nodes, quote(id.secret))
	}
	return executes + name + "(" + quote(id.GID) + ", " + id.nodes + ", " + quote(id.secret) + ")"
}

// explain says what an error about a row of pg_shoal means; the application has no such tables.
func explain(err error, id ID) error {
	var about interface{ Relation() (schema, table string) }
	if !errors.As(err, &about) {
		return err
	}
	if schema, _ := about.Relation(); schema != "pg_shoal" {
		return err
	}
	switch sqlState(err) {
	case codeDuplicate:
		e := pgwire.Errorf(codeSerialization, "transaction %s was already decided", id.GID).WithHint("Run the transaction again.")
		e.Detail = "Recovery settled it while it was about to commit."
		return e
	case codeNull:
		return pgwire.Errorf(codeNoTransaction, "there is no transaction in progress")
	}
	return err
}

// finishAsOwner completes a transaction that SET LOCAL ROLE had made another role's: that role
// ended with the transaction, and PostgreSQL lets only the owner complete it.
func finishAsOwner(ctx context.Context, id ID, p Participant, s step) error {
	if err := exec(ctx, p, "SELECT pg_catalog.set_config('pg_shoal.role', pg_catalog.current_setting('role'), false), "+
		"pg_catalog.set_config('role', (SELECT owner FROM pg_catalog.pg_prepared_xacts WHERE gid = "+quote(id.GID)+"), false)"); err != nil {
		return err
	}
	err := exec(ctx, p, statement(s, id, ""))
	back := exec(ctx, p, "SELECT pg_catalog.set_config('role', pg_catalog.current_setting('pg_shoal.role'), false)")
	return errors.Join(err, back)
}

// sqlState returns what a node answered, or "".
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return ""
	}
	return e.SQLState()
}

// classify says whether an error is a certain no.
//
// No certain answers: lost connections (08), a server that is ending the session (57P), and what
// can end a server in the middle of a commit, when it is written but not yet acknowledged: lack of
// resources (53), system errors (58), internal errors (XX).
func classify(err error) answer {
	if err == nil {
		return yes
	}
	code := sqlState(err)
	if len(code) != 5 {
		return lost
	}
	switch code[:2] {
	case "08", "53", "58", "XX":
		return lost
	}
	if strings.HasPrefix(code, "57P") {
		return lost
	}
	return no
}

// telling picks the error that says most: what a node said rather than a connection that broke.
func telling(errs []error) error {
	var first error
	for _, err := range errs {
		if err != nil && classify(err) == no {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}
