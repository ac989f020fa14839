package sqldiff

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pgshoal/pgshoal/sqltext"
)

// patience is how long a statement may take before it counts as hanging.
const patience = 30 * time.Second

// Mode is a way to send a statement.
type Mode int

// The modes: the simple protocol; Parse, Bind, Execute at once with results as text; a named prepared
// statement with results in binary.
const (
	Simple Mode = iota
	Extended
	Prepared
)

func (m Mode) String() string { return [...]string{"simple", "extended", "prepared, binary"}[m] }

// session is one client of a server or a router; it connects again when its connection fails.
type session struct {
	config *pgconn.Config
	conn   *pgconn.PgConn
}

func connect(ctx context.Context, dsn, database string) (*session, error) {
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	if database != "" {
		config.Database = database
	}
	s := &session{config: config}
	return s, s.open(ctx)
}

func (s *session) open(ctx context.Context) error {
	if s.conn != nil && !s.conn.IsClosed() {
		return nil
	}
	var err error
	if s.conn, err = pgconn.ConnectConfig(ctx, s.config); err != nil {
		return err
	}
	return s.must(ctx, "SET statement_timeout = '20s'")
}

func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if s.conn != nil {
		_ = s.conn.Close(ctx) // the connection is not needed any more
	}
}

// must executes what has to succeed.
func (s *session) must(ctx context.Context, sql string) error {
	return s.conn.Exec(ctx, sql).Close()
}

// rows asks for rows as text; it is for what the oracle itself wants to know.
func (s *session) rows(ctx context.Context, sql string) ([][][]byte, error) {
	results, err := s.conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	var all [][][]byte
	for _, r := range results {
		all = append(all, r.Rows...)
	}
	return all, nil
}

// reset ends whatever a case left open.
func (s *session) reset(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if s.conn.TxStatus() != 'I' {
		return s.must(ctx, "ROLLBACK")
	}
	return nil
}

// run sends one step of a case and returns all that a client sees.
func (s *session) run(ctx context.Context, c *Case, sql string, mode Mode) *Answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.open(ctx); err != nil {
		return &Answer{Broken: err.Error()}
	}
	if sqltext.FirstKeyword(sql) == "COPY" {
		return s.copy(ctx, c, sql)
	}
	params := c.Params
	if !strings.Contains(sql, "$1") {
		params = nil
	}
	switch mode {
	case Extended:
		return answerOf(s.conn.ExecParams(ctx, sql, params, nil, nil, nil).Read())
	case Prepared:
		return s.runPrepared(ctx, sql, params)
	}
	results, err := s.conn.Exec(ctx, sql).ReadAll()
	if err == nil && len(results) == 1 {
		return answerOf(results[0])
	}
	return answerOf(&pgconn.Result{Err: err})
}

func (s *session) runPrepared(ctx context.Context, sql string, params [][]byte) *Answer {
	const name = "sqldiff"
	description, err := s.conn.Prepare(ctx, name, sql, nil)
	if err != nil {
		return answerOf(&pgconn.Result{Err: err})
	}
	a := answerOf(s.conn.ExecPrepared(ctx, name, params, nil, []int16{1}).Read())
	a.Parameters = description.ParamOIDs
	if err := s.conn.Deallocate(ctx, name); err != nil && s.conn.IsClosed() {
		a.Broken = err.Error()
	}
	return a
}

func (s *session) copy(ctx context.Context, c *Case, sql string) *Answer {
	var out bytes.Buffer
	var tag pgconn.CommandTag
	var err error
	if strings.Contains(strings.ToUpper(sql), "FROM STDIN") {
		tag, err = s.conn.CopyFrom(ctx, strings.NewReader(c.Data), sql)
	} else {
		tag, err = s.conn.CopyTo(ctx, &out, sql)
	}
	a := answerOf(&pgconn.Result{CommandTag: tag, Err: err})
	a.Copied = out.String()
	return a
}

func answerOf(r *pgconn.Result) *Answer {
	a := &Answer{Tag: r.CommandTag.String(), Rows: r.Rows}
	var pgErr *pgconn.PgError
	switch {
	case errors.As(r.Err, &pgErr):
		a.Code, a.Message = pgErr.Code, pgErr.Message
	case r.Err != nil:
		a.Broken = r.Err.Error()
	}
	for _, f := range r.FieldDescriptions {
		a.Columns = append(a.Columns, Column{f.Name, f.DataTypeOID, f.TypeModifier, f.Format})
	}
	return a
}
