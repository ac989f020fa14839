package router

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/ioloop"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/sqltext"
)

// session is one client from its startup to its end. Its goroutine serves both directions; other
// goroutines only cancel it or ask what it is doing.
type session struct {
	cursorTables int // temporary tables that cursors over several nodes have read
	// capture takes the rows and the tag of a part of a statement, which are not for the client.
	capture *captured
	router  *Router
	log     *slog.Logger
	client  *pgwire.Stream
	task    *ioloop.Task

	unsampled int // so many statements are led to a node before the key of the next one is sampled

	user, database string
	creds          pool.Credentials
	pid, secret    uint32
	gone           chan struct{} // closed when the session has ended

	// startup are the settings the client asked for; what RESET returns to.
	startup    *settingSet
	settings   *settingSet
	reported   map[string]string // ParameterStatus as the client knows it
	withheld   map[string]string // what it does not know yet, with the values that it knows; nil when it is told at once
	searchPath string
	// roleConsistency is shoal.read_consistency as the role or the database have it.
	roleConsistency string
	space           *planSpace

	// text and norm are the statement being worked on, in UTF-8; raw is what the client sent.
	text      []byte
	raw       []byte
	norm      sqltext.Normalized
	lifted    arguments // the literals of text that are parameters of its plan
	encodings encodings

	txn      transaction
	spare    *participant // kept to be used again
	batching bool         // a message of the extended protocol is about to be sent to the participant that is asked for
	replica  bool         // the statement at hand may be answered by a replica
	last     lastHome
	extended extended
	relay    relayState

	temporary     []string // names of temporary tables and the like
	ownSpace      *planSpace
	ownKey        spaceKey
	temporaryCode []plan.TemporaryDDL
	schemaChanged bool // the transaction has changed the schema
	ownCatalog    *catalog.Catalog
	listening     bool
	stopped       bool              // the last statement failed: the rest of its text is not run
	cursors       map[string]string // node of each cursor that SQL declared
	cursorsApart  map[string]bool   // cursors over several nodes: they read gathered rows on the home node
	// namesUnknown is set when something may have changed what names mean, and the node must tell: a search_path
	// that went back to its default, temporary tables that came or went.
	namesUnknown bool
	hidden       map[string]bool // settings that code on the home node may change; see plan.AnySetting
	acting       string          // the role that SET LOCAL chose; "" when the settings tell

	hold   string       // why server connections are kept between transactions
	spends bool         // what they have got cannot be taken back: nobody else may get them
	pinned atomicString // the same as hold, for others to read
	clock  clock

	terminated atomic.Bool                  // somebody has ended the session
	since      atomic.Int64                 // when the statement at hand began, by the router's age in nanoseconds; 0 between statements
	victim     atomic.Pointer[pgwire.Error] // why the statement at hand is cancelled, when a deadlock is

	mu      sync.Mutex
	touched []uint32 // tables the transaction works on
	running []*pool.Conn
	awaited context.CancelCauseFunc // ends the wait for a connection, nil without one
	span    span
	idle    bool // waiting for the client, outside a transaction

	fenceID string
	fence   atomicString
}

type atomicString struct{ p atomic.Pointer[string] }

func (a *atomicString) Store(s string) { a.p.Store(&s) }

func (a *atomicString) Load() string {
	if p := a.p.Load(); p != nil {
		return *p
	}
	return ""
}

// errClientGone ends a session without a word.
var errClientGone = errors.New("the client is gone")

// serveClient is the life of one client connection.
func (r *Router) serveClient(ctx context.Context, conn net.Conn, task *ioloop.Task) {
	defer conn.Close()
	lv := r.live.Load()
	// Twice the limit, as in PostgreSQL: cancel requests get through, and so does the news that it is full,
	// but those who never finish their startup packet cannot take all sockets.
	defer r.sockets.Add(-1)
	if int(r.sockets.Add(1)) > 2*lv.maxClients {
		r.measures.refuse(refusedLimit)
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = conn.Write(errTooMany().AppendTo(nil))
		return
	}
	c, err := pgwire.Accept(ctx, conn, lv.accept)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			r.log.Debug("client refused", "client", conn.RemoteAddr(), "error", err)
		}
		return
	}
	if c.Cancel != nil {
		r.cancel(ctx, *c.Cancel)
		return
	}
	// Counted before authentication, which costs a question to the home node.
	defer r.connected.Add(-1)
	if int(r.connected.Add(1)) > lv.maxClients {
		r.measures.refuse(refusedLimit)
		c.Fail(errTooMany())
		return
	}
	s := &session{router: r, client: c.Stream, user: c.User, database: c.Database, log: r.log, task: task}
	if err := s.start(ctx, c, lv); err != nil {
		r.measures.refuse(whyRefused(err))
		c.Fail(err)
		r.log.Debug("client refused", "client", conn.RemoteAddr(), "user", c.User, "database", c.Database, "error", err)
		return
	}
	r.measures.accept()
	defer r.clients.remove(s)
	defer s.end(ctx)
	defer s.survive()
	err = s.serve(ctx)
	if err != nil && !errors.Is(err, errClientGone) && !isClosed(err) {
		r.log.Debug("session ended", "client", conn.RemoteAddr(), "user", s.user, "error", err)
	}
}

func errTooMany() *pgwire.Error { return pgwire.Fatalf("53300", "sorry, too many clients already") }

// whyRefused sorts the failures of a login.
func whyRefused(err error) refusal {
	var e *pgwire.Error
	if errors.As(err, &e) && strings.HasPrefix(e.Code, "28") {
		return refusedAuthentication
	}
	return refusedOther
}

// survive keeps a defect that one statement meets from ending the sessions of all others.
func (s *session) survive() {
	fault := recover()
	if fault == nil {
		return
	}
	s.log.Error("session failed", "user", s.user, "fault", fault, "stack", string(debug.Stack()))
	for _, p := range s.txn.parts {
		p.conn.Broken = true
	}
	s.send(pgwire.Fatalf(pgwire.CodeInternal, "internal error: %v", fault))
	_ = s.client.Flush()
}

func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(err.Error(), "connection reset")
}

// start authenticates the client and greets it with what the home node says.
func (s *session) start(ctx context.Context, c *pgwire.Client, lv *live) error {
	if s.router.draining.Load() {
		return pgwire.Fatalf("57P03", "the database system is shutting down")
	}
	if err := s.authenticate(ctx, c, lv); err != nil {
		return err
	}
	var random [4]byte
	_, _ = rand.Read(random[:])
	s.secret = binary.BigEndian.Uint32(random[:])
	s.unsampled = int(s.secret % (2*sampleEvery - 1))
	s.router.clients.add(s, uint32(s.router.member.Load().Member().Number))
	if err := s.greet(ctx, c); err != nil {
		s.router.clients.remove(s)
		return err
	}
	return nil
}

// greet logs in to the home node as the client's role, which checks the role and the database,
// applies the client's settings and passes the node's parameters on.
func (s *session) greet(ctx context.Context, c *pgwire.Client) error {
	values := map[string]string{}
	for _, set := range c.Settings {
		values[strings.ToLower(set.Name)] = set.Value
	}
	s.startup = s.router.settings.intern(values)
	s.settings = s.startup
	s.reported = map[string]string{}
	s.relay.init(s)
	v := s.router.view.Load()
	conn, err := s.acquireBy(ctx, v.m.Home, s.router.pool.AcquireAlive)
	if err != nil {
		return err
	}
	defer s.router.pool.Release(conn)
	if err := s.sync(ctx, conn); err != nil {
		return err
	}
	maps.Copy(s.reported, conn.Params)
	s.encodingChanged()
	rows, err := conn.Query(ctx, "SELECT pg_catalog.current_setting('search_path'), pg_catalog.current_setting('"+readConsistency+"', true)")
	if err != nil {
		return err
	}
	s.roleConsistency = string(rows[0][1])
	path, err := s.readText(ctx, rows[0][0])
	if err != nil {
		return err
	}
	s.setSearchPath(string(path))
	out := s.client.Out()
	*out = pgwire.AppendAuthOK(*out)
	for name, value := range s.reported {
		*out = pgwire.AppendParameterStatus(*out, name, value)
	}
	*out = pgwire.AppendBackendKeyData(*out, s.pid, s.secret)
	*out = pgwire.AppendReadyForQuery(*out, pgwire.TxIdle)
	return s.client.Flush()
}

func (s *session) poolKey(node string) pool.Key {
	return pool.Key{Node: node, Role: s.user, Database: s.database}
}

func (s *session) standardStrings() bool { return s.reported["standard_conforming_strings"] != "off" }

// serve reads and answers messages until the client leaves.
func (s *session) serve(ctx context.Context) error {
	defer s.task.Detach()
	for {
		if !s.listening {
			s.client.Socket.ParkReads(s.task)
		}
		if s.client.Buffered() == 0 {
			if err := s.awaitClient(); err != nil {
				return err
			}
		}
		typ, msg, err := s.client.Next()
		s.client.Socket.ParkReads(nil)
		if s.terminated.Load() {
			return s.farewell()
		}
		if err != nil {
			return err
		}
		if s.router.draining.Load() && s.txn.mode == modeIdle && !s.extended.busy() {
			s.send(pgwire.Fatalf("57P01", "terminating connection due to administrator command"))
			return s.client.Flush()
		}
		switch typ {
		case 'Q':
			err = s.simpleQuery(ctx, msg)
		case 'P', 'B', 'D', 'E', 'C', 'S', 'H':
			err = s.extendedMessage(ctx, typ, msg)
		case 'X':
			return errClientGone
		case 'd', 'c', 'f': // the rest of a COPY that has failed already
		case 'F':
			s.task.Detach()
			err = s.functionCall(ctx, msg)
		default:
			s.send(pgwire.Fatalf(pgwire.CodeProtocolViolation, "invalid frontend message type %d", typ))
			_ = s.client.Flush()
			return errClientGone
		}
		if err != nil {
			return err
		}
	}
}

// awaitClient waits for the client's next message. Between transactions the buffer goes back, so
// that an idle client costs little; a session that listens passes notifications on meanwhile.
func (s *session) awaitClient() error {
	if s.txn.mode == modeIdle && !s.extended.busy() {
		s.setIdle(true)
		defer s.setIdle(false)
		if s.router.draining.Load() {
			s.send(pgwire.Fatalf("57P01", "terminating connection due to administrator command"))
			_ = s.client.Flush()
			return errClientGone
		}
	}
	s.client.Idle()
	if s.listening {
		stop := s.passNotifications()
		defer stop()
	}
	err := s.client.Await()
	if s.terminated.Load() {
		return s.farewell()
	}
	if err != nil && s.router.draining.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
		_ = s.client.Conn.SetDeadline(time.Time{})
		s.send(pgwire.Fatalf("57P01", "terminating connection due to administrator command"))
		_ = s.client.Flush()
		return errClientGone
	}
	return err
}

func (s *session) setIdle(idle bool) {
	s.mu.Lock()
	s.idle = idle
	s.mu.Unlock()
}

// interrupt wakes a session that waits for its client outside a transaction, to end it.
func (s *session) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle {
		_ = s.client.Conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// end gives everything back; an open transaction is rolled back by closing its connections.
func (s *session) end(ctx context.Context) {
	s.dropFence(context.WithoutCancel(ctx))
	s.txn.abandon(s)
	s.leave()
}

// send appends an error or a notice for the client.
func (s *session) send(e *pgwire.Error) {
	if v := s.victim.Load(); v != nil && e.Code == pgwire.CodeQueryCanceled {
		e = v
	}
	if e.Severity == pgwire.SeverityError || e.Severity == pgwire.SeverityFatal {
		s.fault(e.Code)
	}
	if e.Own() {
		e = s.errorForClient(e)
	}
	out := s.client.Out()
	*out = e.AppendTo(*out)
}

// ready ends the answer to a simple query.
func (s *session) ready() error {
	out := s.client.Out()
	*out = pgwire.AppendReadyForQuery(*out, s.txn.status())
	return s.client.Flush()
}

func (s *session) complete(tag string) {
	if s.capture != nil {
		s.capture.tag = tag
		return
	}
	out := s.client.Out()
	*out = pgwire.AppendCommandComplete(*out, tag)
}

// catalog is the schema as the session's transaction sees it.
func (s *session) catalog(ctx context.Context, v *view) (*catalog.Catalog, error) {
	if !s.schemaChanged {
		return s.router.catalogs.get(ctx, v, s.database)
	}
	if s.ownCatalog == nil {
		p, err := s.participant(ctx, v.m.Home)
		if err != nil {
			return nil, err
		}
		if err := s.flushPreamble(p); err != nil {
			return nil, err
		}
		err = s.inUTF8(ctx, func() (err error) {
			s.ownCatalog, err = s.router.catalogs.private(ctx, p.conn, s.database, v.m.Schemas[s.database])
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return s.ownCatalog, nil
}
